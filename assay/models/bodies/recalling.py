"""A body that reads the last observations, actions and rewards of an episode beside the current observation.

Axes: k - 1 past decisions, D numbers of an observation, A of an action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body, History
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.models.action_units import ActionUnits
from assay.models.bodies.perceptron import Perceptron, vectors


class RecalledInputs(nn.Module):
    """Passes past decisions, observation and goal to another network as one vector."""

    def __init__(self, inner: nn.Module, spec: Spec, history: History) -> None:
        super().__init__()
        self.inner, self.history, self.space = inner, history, spec.action
        self.units = ActionUnits(spec.action)

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns the outputs of the inner network."""
        seen = context["observation"]
        past = self.past(context, seen)
        joined = {**context, "observation": torch.cat((past, seen), -1)}
        outputs: Tensor = self.inner(joined) if action is None else self.inner(joined, action, num)
        return outputs

    def past(self, context: Context, seen: Tensor) -> Tensor:
        """Returns the past as one vector; zeros for those that are missing."""
        return self.decisions(context, seen)[0].flatten(-2)

    def decisions(self, context: Context, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Returns past decisions as vectors [..., k - 1, F], the latest last, and whether each is there [..., k - 1];
        zeros for those that are missing.
        """
        steps, axes = self.history.steps - 1, seen.shape[:-1]
        if "past" not in context or not steps:
            size = size_of_step(seen.shape[-1], self.space, self.history)
            return seen.new_zeros(*axes, steps, size), torch.zeros(*axes, steps, dtype=torch.bool, device=seen.device)
        parts = [context["past_observation"][..., -steps:, :]]
        if self.history.actions:
            done = context["past_action"][..., -steps:, :] if isinstance(self.space, Box) else context["past_action"]
            parts.append(self.units(done) if isinstance(self.space, Box) else self.one_hot(done[..., -steps:], seen))
        if self.history.rewards:
            parts.append(context["past_reward"][..., -steps:].unsqueeze(-1).to(seen.dtype))
        there = context["past"][..., -steps:]
        return torch.cat(parts, -1) * there.unsqueeze(-1), there

    def one_hot(self, done: Tensor, like: Tensor) -> Tensor:
        """Returns discrete actions as vectors."""
        assert isinstance(self.space, Discrete)
        return functional.one_hot(done, self.space.n).to(like.dtype)


def size_of_step(observed: int, space: object, history: History) -> int:
    """Returns the numbers of one past decision."""
    acted = (space.size if isinstance(space, Box) else space.n if isinstance(space, Discrete) else 0) * history.actions
    return observed + acted + history.rewards


@dataclass(frozen=True)
class WithHistory(Body):
    """A body on the last `steps` observations of the episode, with actions and rewards if asked: frame stacking for
    policies whose observation does not tell the state (arXiv:1312.5602).

    Places before the first decision of an episode are zeros. Degenerate: 1 step is the body itself. Assumes vectors.
    """

    body: Body = Perceptron()
    steps: int = 4
    actions: bool = True
    rewards: bool = False

    @property
    def reads_history(self) -> History:
        """How much of the past it reads."""
        return History(self.steps, self.actions, self.rewards)

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        inner, seen = vectors(self.body, "a body with history"), spec.observation
        if not isinstance(seen, Box) or not isinstance(spec.action, Box | Discrete):
            what = f"the task has {seen} and {spec.action}"
            raise AssayError(f"a body with history reads vectors, with discrete or continuous actions; {what}. Use Box")
        more = (self.steps - 1) * size_of_step(seen.size, spec.action, self.reads_history)
        wide = replace(spec, observation=Box((float("-inf"),) * more + seen.low, (float("inf"),) * more + seen.high))
        return RecalledInputs(inner.outputs(wide, ask), spec, self.reads_history)
