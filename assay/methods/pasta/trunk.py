"""A transformer over the tokens of states and actions, and a body on it.

Axes: R rows, T decisions, S numbers of a state, n tokens of a decision, L = T n tokens, W width.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.slots import History
from assay.method import Ask, AssayError, Body, Box, Context, Discrete, Spec, State
from assay.methods.pasta.tokens import Granularity, NumberTokens
from assay.models import CausalStack, Perceptron

WIDE = math.inf


class TrajectoryTrunk(nn.Module):
    """Hidden states of the tokens of decisions; what no sensor says has no path to any of them."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, settings: "OnTrajectories", spec: Spec) -> None:
        super().__init__()
        seen, size = spec.observation, settings.stack.width
        if not isinstance(seen, Box) or not isinstance(spec.action, Box | Discrete):
            what = f"a trajectory of numbers has vectors, with continuous or discrete actions; the task has {seen}"
            raise AssayError(f"{what} and {spec.action}. Use decision-transformer for numbered states")
        self.spec, self.length = spec, settings.length
        mean, deviation = settings.moments or ((0.0,) * seen.size, (1.0,) * seen.size)
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("deviation", torch.tensor(deviation).clamp(min=1e-3))
        self.tokens = cast(Any, settings.tokens.build(spec, seen.size, size))
        self.stack = cast(Any, settings.stack.build())
        self.of_part, self.of_time = nn.Embedding(sum(self.tokens.counts), size), nn.Embedding(spec.horizon + 1, size)
        self.blank, self.norm = nn.Parameter(torch.zeros(size)), nn.LayerNorm(size)
        for table in (self.of_part, self.of_time):
            nn.init.normal_(table.weight, std=0.02)

    def kept(self) -> State:
        """Returns the moments with which it was trained."""
        return {"mean": self.mean.clone(), "deviation": self.deviation.clone()}

    def keep(self, state: State) -> None:
        """Sets the moments."""
        self.mean.copy_(state["mean"])
        self.deviation.copy_(state["deviation"])

    def states(self, observation: Tensor) -> Tensor:
        """Returns standardised states."""
        return (observation - self.mean) / self.deviation

    def forward(
        self, state: Tensor, done: Tensor, time: Tensor | None, shown: Tensor | None = None,
        masked: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns hidden states [R, T, n, W] of states [R, T, S], actions [R, T, ...] and times [R, T], else columns.

        Only tokens that are `shown` [R, T, n] are seen, by those after them; with `masked` tokens [R, T, n], which are
        blank, by all.
        """
        x = self.tokens.embed(state, done)
        if masked is not None:
            x = torch.where(masked.unsqueeze(-1), self.blank, x)
        time = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2]) if time is None else time
        times = self.of_time(time.clamp(max=self.spec.horizon)).unsqueeze(2)
        x = self.norm(x + self.of_part.weight + times).flatten(1, 2)
        allowed = None if shown is None else may_see(shown.flatten(1), masked is not None)
        turn = self.stack.turn(x.shape[1])
        for block in self.stack.blocks:
            x = block(x, turn, allowed)
        return functional.layer_norm(x, x.shape[-1:], self.stack.norm).unflatten(1, (state.shape[1], -1))

    def represented(self, context: Context) -> Tensor:
        """Returns the mean over the tokens of each decision's state, [..., W]; zeros where every sensor failed."""
        state = self.states(context["observation"])
        if "return_to_go" in context:
            hidden = self(state, actions_after(context), context["time"])
            return hidden[:, :, : self.tokens.counts[0]].mean(2)
        axes = state.shape[:-1]
        flat = {name: value.flatten(0, len(axes) - 1) for name, value in context.items()}
        return self.latest(flat, state.flatten(0, -2)).unflatten(0, axes)

    def latest(self, context: Context, state: Tensor) -> Tensor:
        """Returns that of the latest decision of each row, [R, W]; a context without past is a first step."""
        rows, steps, states = len(state), self.length - 1, state.unsqueeze(1)
        done, there = self.nothing(rows), torch.ones(rows, 1, dtype=torch.bool, device=state.device)
        if "past" in context and steps:
            states = torch.cat((self.states(context["past_observation"][:, -steps:]), states), 1)
            done = torch.cat((context["past_action"][:, -steps:].to(done.dtype), done), 1)
            there = torch.cat((context["past"][:, -steps:], there), 1)
        back = torch.arange(states.shape[1] - 1, -1, -1, device=state.device)
        time = context.get("time", back.new_zeros(rows)).unsqueeze(1) - back
        num_seen, num_acted = self.tokens.counts
        acted = there.unsqueeze(2).expand(-1, -1, num_acted)
        shown = torch.cat((self.tokens.there(states) & there.unsqueeze(2), acted), 2)
        hidden = self(states, done, time.clamp(min=0), shown)[:, -1, :num_seen]
        known = shown[:, -1, :num_seen].unsqueeze(2)
        return (hidden * known).sum(1) / known.sum(1).clamp(min=1)

    def nothing(self, rows: int) -> Tensor:
        """Returns an action of zeros for each row, [R, 1, ...]."""
        if isinstance(self.spec.action, Box):
            return self.mean.new_zeros(rows, 1, self.spec.action.size)
        return torch.zeros(rows, 1, dtype=torch.int64, device=self.mean.device)


def actions_after(context: Context) -> Tensor:
    """Returns the action of each column of windows, which the next one shows as its previous; zeros at the end."""
    done = context["previous_action"]
    return torch.cat((done[:, 1:], torch.zeros_like(done[:, :1])), 1)


def may_see(shown: Tensor, both_ways: bool) -> Tensor:
    """Returns which tokens each one sees, bool [R, 1, L, L]: itself, and shown ones before it, or all shown ones."""
    square = torch.ones(shown.shape[1], shown.shape[1], dtype=torch.bool, device=shown.device)
    seen = shown.unsqueeze(1) if both_ways else shown.unsqueeze(1) & square.tril()
    return (seen | torch.eye(len(square), dtype=torch.bool, device=shown.device)).unsqueeze(1)


class OnTrunk(nn.Module):
    """Passes what a trunk makes of a trajectory to another network, in the place of the observation."""

    def __init__(self, trunk: TrajectoryTrunk, inner: nn.Module, is_frozen: bool) -> None:
        super().__init__()
        self.trunk, self.inner, self.is_frozen = trunk, inner, is_frozen

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns the outputs of the inner network."""
        found = self.trunk.represented(context)
        seen = {**context, "observation": found.detach() if self.is_frozen else found}
        outputs: Tensor = self.inner(seen) if action is None else self.inner(seen, action, num)
        return outputs


@dataclass(frozen=True)
class OnTrajectories(Body):
    """A body on a transformer that reads the last `length` states and the actions between them (arXiv:2307.10936).

    `moments` are mean and deviation of the dataset's states; a plan fills them in. With `is_frozen` no gradient of the
    head's loss reaches the transformer. Degenerate: where every sensor failed the body reads zeros. Assumes vectors.
    """

    body: Body = Perceptron()
    stack: CausalStack = CausalStack()
    tokens: Granularity = NumberTokens()
    length: int = 10
    is_frozen: bool = True
    moments: tuple[tuple[float, ...], ...] = ()
    scale_free: ClassVar[bool] = True

    @property
    def reads_history(self) -> History:
        """How much of the past it reads."""
        return History(self.length, actions=True) if self.length > 1 else History()

    def needs_data(self, spec: Spec) -> bool:
        """Returns whether the moments are missing."""
        return not self.moments

    def of_data(self, observation: Tensor, achieved: Tensor | None) -> "OnTrajectories":
        """Returns the body with the moments of these states, [N, D]."""
        deviation, mean = torch.std_mean(observation.double(), 0, correction=0)
        return replace(self, moments=(tuple(mean.tolist()), tuple(deviation.tolist())))

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        trunk, size = TrajectoryTrunk(self, spec), self.stack.width
        wide = replace(spec, observation=Box((-WIDE,) * size, (WIDE,) * size))
        return OnTrunk(trunk, self.body.outputs(wide, ask), self.is_frozen)
