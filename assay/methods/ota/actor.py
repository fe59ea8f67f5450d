"""An actor of two levels: one proposes a subgoal as a representation, the other acts towards it. Axes: B, T, N, R."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorSpec
from assay.core.spaces import Box, Context, Spec
from assay.models.bodies.perceptron import feature_size, features, perceptron
from assay.models.mlp import Mlp


class TwoLevels(nn.Module):
    """pi(a|s, g) = low(a | s, w), w = mean(s, g) scaled to length sqrt(R); a new subgoal at every decision.

    The low level is an ordinary actor whose goal is the representation.
    """

    def __init__(self, low: Any, num_inputs: int, size: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.low = low
        self.num_draws = int(low.num_draws)
        self.high = perceptron(num_inputs, size, hidden, activation=nn.ReLU)

    def propose(self, context: Context) -> Tensor:
        """Mean of the subgoal, [..., R]."""
        return self.high(features(context))

    def towards(self, context: Context, subgoal: Tensor) -> Context:
        """What the low level sees."""
        scaled = subgoal.shape[-1] ** 0.5 * nn.functional.normalize(subgoal, dim=-1)
        return {"observation": context["observation"], "goal": scaled}

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """The low level's decision towards the proposed subgoal."""
        action, logp = self.low.act(self.towards(context, self.propose(context)), uniform)
        return action, logp

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the recorded decisions under both levels together."""
        return self.score_towards(batch, self.propose(batch.context), needs)

    def score_towards(self, batch: Experience, subgoal: Tensor, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the low level alone, towards given subgoals [B, T, R]."""
        scored: Scored = self.low.score(replace(batch, context=self.towards(batch.context, subgoal)), needs)
        return scored


@dataclass(frozen=True)
class Hierarchical(ActorSpec):
    """Two perceptrons (HIQL, arXiv:2307.11949): subgoals of `size` numbers, and choices or torques towards them."""

    hidden: tuple[int, ...] = (128, 128)
    size: int = 10

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if spec.goal is None:
            raise AssayError("Hierarchical needs a task with goals, this one has none; take four-rooms or a pointmaze")
        reach = Box((-(self.size**0.5),) * self.size, (self.size**0.5,) * self.size)
        low = Mlp(self.hidden).build(replace(spec, goal=reach))
        return TwoLevels(low, feature_size(spec), self.size, self.hidden)
