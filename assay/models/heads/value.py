"""Values of states and of actions. Axes: B sequences, T decisions, N members, A actions, M bins or quantiles.

With `bins` a body outputs logits over them (`outputs`), or quantiles, and the value is the mean of the distribution:
policies, bootstraps and credit use the value, losses use the outputs. Logits of 0 decode to the middle of the range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Ask, Body, CriticHead
from assay.core.spaces import Context, Space, Spec
from assay.models.action_units import ActionUnits
from assay.models.heads.bins import Bins, Quantiles, read, shape_of
from assay.models.heads.masks import apply_mask
from assay.models.heads.spaces import need_discrete


class StateValues(nn.Module):
    """V(s)."""

    def __init__(self, body: nn.Module, bins: Bins | Quantiles | None) -> None:
        super().__init__()
        self.body, self.bins = body, bins

    def outputs(self, context: Context) -> Tensor:
        """Returns values [...], or logits [..., M]."""
        outputs: Tensor = self.body(context)
        return outputs

    def forward(self, context: Context) -> Tensor:
        """Returns state values [...]."""
        return read(self.outputs(context), self.bins)


@dataclass(frozen=True)
class Value(CriticHead):
    """A critic V(s), or V(tokens so far)."""

    bins: Bins | Quantiles | None = None

    def on(self, body: Body, spec: Spec) -> nn.Module:
        return StateValues(body.outputs(spec, Ask(shape_of(self.bins))), self.bins)


class ActionValues(nn.Module):
    """Q_i(s, a); a continuous action is an input in half-ranges (`ActionUnits`)."""

    def __init__(self, body: nn.Module, space: Space, bins: Bins | Quantiles | None) -> None:
        super().__init__()
        self.body, self.units, self.bins = body, ActionUnits(space), bins

    def outputs(self, context: Context, action: Tensor, num: int | None = None) -> Tensor:
        """Returns values [N, B, T], or logits [N, B, T, M], of all members or the first `num`."""
        outputs: Tensor = self.body(context, self.units(action), num)
        return outputs

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns action values [N, B, T]."""
        return read(self.outputs(context, action), self.bins)

    def first(self, context: Context, action: Tensor) -> Tensor:
        """Returns Q_1 alone, [B, T]."""
        return read(self.outputs(context, action, 1), self.bins).squeeze(0)


@dataclass(frozen=True)
class ActionValue(CriticHead):
    """`members` critics Q(s, a) for discrete and continuous actions; two for the clipped double Q of TD3 and SAC. For
    tokens: the value of the text so far, the last token included.
    """

    members: int = 2
    bins: Bins | Quantiles | None = None

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if self.members < 1:
            raise AssayError(f"ActionValue: members={self.members} leaves no critic. Use 1 or more")
        ask = Ask(shape_of(self.bins), activation=nn.ReLU, members=self.members, action=True)
        return ActionValues(body.outputs(spec, ask), spec.action, self.bins)


# ---------------------------------------------------------------------------------------------------- actors
def scored_softmax(values: Tensor, batch: Experience) -> Scored:
    """Returns log softmax of values [..., A] at the recorded actions."""
    return Scored(values.log_softmax(-1).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1) * batch.mask)


class Acting(nn.Module):
    """a = argmax Q(s, .); the log-probability of the greedy action is 0."""

    num_draws = 1

    def values(self, context: Context) -> Tensor:
        """Returns Q(s, .) [..., A]."""
        raise NotImplementedError

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the greedy action; `uniform` is not used (exploration wraps this actor)."""
        values = self.values(context)
        return values.argmax(-1), values.new_zeros(values.shape[:-1])

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log softmax(Q)[a]: lets action values be cloned or regularised as a policy."""
        return scored_softmax(self.values(batch.context), batch)


class GreedyPolicy(Acting):
    """Q(s, .) from a body."""

    def __init__(self, body: nn.Module, num_actions: int, bins: Bins | Quantiles | None) -> None:
        super().__init__()
        self.body, self.num_actions, self.bins = body, num_actions, bins

    def outputs(self, context: Context) -> Tensor:
        """Returns values [..., A], or logits [..., A, M]."""
        outputs: Tensor = self.body(context)
        return outputs

    def values(self, context: Context) -> Tensor:
        return apply_mask(read(self.outputs(context), self.bins), context)


@dataclass(frozen=True)
class Greedy(ActorHead):
    """An actor that is its own critic: acts greedily on its values of discrete actions."""

    bins: Bins | Quantiles | None = None
    breaks: ClassVar[dict[str, str]] = {
        "agree": "acts greedily with log-probability 0; `score` is the softmax of the values, for cloning",
        "frequencies": "acts greedily; `score` is the softmax of the values, for cloning",
    }

    def on(self, body: Body, spec: Spec) -> nn.Module:
        num = need_discrete(spec, "a greedy actor").n
        return GreedyPolicy(body.outputs(spec, Ask((num, *shape_of(self.bins)), activation=nn.ReLU)), num, self.bins)
