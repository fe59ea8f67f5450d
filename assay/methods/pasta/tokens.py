"""What one token is: each number of states and actions, or each state and each action.

Axes: S numbers of a state, A of an action, n tokens of a decision, W width.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.method import AssayError, Discrete, Spec
from assay.models import ActionUnits
from assay.models.bodies.stacks import MAKES

MU, REACH = 255.0, 4.0


def bins_of(x: Tensor, num: int) -> Tensor:
    """Returns the bin, 0 to num - 1, of numbers from -1 to 1, fine around 0; those beyond are in the outer ones."""
    companded = x.sign() * torch.log1p(MU * x.abs()) / math.log1p(MU)
    return ((companded + 1.0) / 2.0 * num).ceil().long().sub(1).clamp(0, num - 1)


class ByNumber(nn.Module):
    """One token for each number of a state and of an action; a choice is one number, its own bin."""

    def __init__(self, num: int, spec: Spec, num_seen: int, width: int) -> None:
        super().__init__()
        self.num, self.units, self.is_choice = num, ActionUnits(spec.action), isinstance(spec.action, Discrete)
        self.counts = num_seen, 1 if self.is_choice else spec.action.size  # type: ignore[union-attr]
        self.of_bin, self.output = nn.Embedding(num, width), nn.Linear(width, num)
        nn.init.normal_(self.of_bin.weight, std=0.02)

    def bins(self, state: Tensor, done: Tensor) -> Tensor:
        """Returns the bins of states [..., S] and actions, [..., n]."""
        acted = done.unsqueeze(-1) if self.is_choice else bins_of(self.units(done), self.num)
        return torch.cat((bins_of(state.nan_to_num() / REACH, self.num), acted), -1)

    def embed(self, state: Tensor, done: Tensor) -> Tensor:
        """Returns the tokens [..., n, W]."""
        found: Tensor = self.of_bin(self.bins(state, done))
        return found

    def there(self, state: Tensor) -> Tensor:
        """Returns which tokens a state has, [..., S]: not those of failed sensors."""
        return ~state.isnan()

    def miss(self, hidden: Tensor, state: Tensor, done: Tensor) -> Tensor:
        """Returns -log p of each token, [..., n], given the hidden states that foretell it [..., n, W]."""
        logp = self.output(hidden).log_softmax(-1)
        return -logp.gather(-1, self.bins(state, done).unsqueeze(-1)).squeeze(-1)


class ByVector(nn.Module):
    """One token for each state and one for each action; a number that is missing is the mean, 0."""

    def __init__(self, hidden: int, spec: Spec, num_seen: int, width: int) -> None:
        super().__init__()
        self.units, self.space, self.counts = ActionUnits(spec.action), spec.action, (1, 1)
        acted = spec.action.n if isinstance(spec.action, Discrete) else spec.action.size  # type: ignore[union-attr]
        self.of_state, self.of_action = two_layers(num_seen, hidden, width), two_layers(acted, hidden, width)
        self.next_state, self.next_action = two_layers(width, hidden, num_seen), two_layers(width, hidden, acted)

    def acted(self, done: Tensor, like: Tensor) -> Tensor:
        """Returns actions as vectors."""
        one = functional.one_hot(done, self.space.n) if isinstance(self.space, Discrete) else self.units(done)
        return one.to(like.dtype)

    def embed(self, state: Tensor, done: Tensor) -> Tensor:
        """Returns the tokens [..., 2, W]."""
        state = state.nan_to_num()
        return torch.stack((self.of_state(state), self.of_action(self.acted(done, state))), -2)

    def there(self, state: Tensor) -> Tensor:
        """Returns true: a state always has its token, [..., 1]."""
        return torch.ones_like(state[..., :1], dtype=torch.bool)

    def miss(self, hidden: Tensor, state: Tensor, done: Tensor) -> Tensor:
        """Returns half of the squared distance of each vector from what was foretold, [..., 2]."""
        first, second = self.next_state(hidden[..., 0, :]) - state, self.next_action(hidden[..., 1, :])
        return torch.stack([one.square().sum(-1) / 2 for one in (first, second - self.acted(done, state))], -1)


def two_layers(num_inputs: int, hidden: int, num_outputs: int) -> nn.Module:
    """Returns W_2 gelu(W_1 x)."""
    return nn.Sequential(nn.Linear(num_inputs, hidden), nn.GELU(), nn.Linear(hidden, num_outputs))


class Granularity(Protocol):
    """What one token is."""

    def build(self, spec: Spec, num_seen: int, width: int) -> nn.Module:
        """Returns a module with `counts`, `embed`, `there` and `miss`."""


@dataclass(frozen=True)
class NumberTokens(Granularity):
    """One token for each number, in `bins` bins."""

    bins: int = 256
    not_a_part: ClassVar[str] = MAKES

    def build(self, spec: Spec, num_seen: int, width: int) -> nn.Module:
        if isinstance(spec.action, Discrete) and spec.action.n > self.bins:
            raise AssayError(f"tokens.bins is {self.bins}, and the task has {spec.action.n} choices. Use as many bins")
        return ByNumber(self.bins, spec, num_seen, width)


@dataclass(frozen=True)
class VectorTokens(Granularity):
    """One token for each state or action; `inner` 128 gives as many parameters as `NumberTokens` has with 256 bins."""

    inner: int = 128
    not_a_part: ClassVar[str] = MAKES

    def build(self, spec: Spec, num_seen: int, width: int) -> nn.Module:
        return ByVector(self.inner, spec, num_seen, width)
