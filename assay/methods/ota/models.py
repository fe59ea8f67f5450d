"""Goal-conditioned values V(s, g), and an actor of two levels: one proposes a subgoal representation, the other acts
towards it. Axes: B sequences, T columns, N members, R numbers of a representation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Ask, Body, CriticHead
from assay.core.spaces import Box, Context, Spec
from assay.models.bodies.perceptron import Vectors, feature_size, features, vectors
from assay.models.heads.gaussian import Distribution
from assay.models.heads.goals import need_goal, of_length_root


class RepresentedValue(nn.Module):
    """V_i(s, g) = f_i(s, phi(s, g)), phi of length sqrt(R): N heads that see the goal through its representation
    only.
    """

    def __init__(self, body: Vectors, num_seen: int, num_goal: int, size: int, num: int) -> None:
        super().__init__()
        self.phi = body.network(num_seen + num_goal, Ask((size,), activation=nn.ReLU))
        self.heads = body.network(num_seen + size, Ask(activation=nn.ReLU, members=num))

    def represent(self, context: Context) -> Tensor:
        """Returns phi(s, g) [..., R]."""
        return of_length_root(self.phi(features(context)))

    def forward(self, context: Context) -> Tensor:
        """Returns values [N, B, T]."""
        rows = torch.cat((context["observation"], self.represent(context)), -1)
        values: Tensor = self.heads(rows.flatten(0, -2))
        return values.view(-1, *rows.shape[:-1])


@dataclass(frozen=True)
class GoalValue(CriticHead):
    """`members` values V(s, g) behind a representation of `size` numbers (HIQL, arXiv:2307.11949)."""

    size: int = 10
    members: int = 2

    def on(self, body: Body, spec: Spec) -> nn.Module:
        """Returns the critic for this task."""
        goal = need_goal(spec, "GoalValue").size
        seen = feature_size(spec) - goal
        return RepresentedValue(vectors(body, "GoalValue"), seen, goal, self.size, self.members)


# ---------------------------------------------------------------------------------------------------- the actor
class TwoLevels(nn.Module):
    """pi(a|s, g) = low(a | s, w), w = mean(s, g) scaled to length sqrt(R); a new subgoal at every decision.

    The low level is an ordinary actor whose goal is the representation.
    """

    def __init__(self, low: Any, high: nn.Module) -> None:
        super().__init__()
        self.low, self.high, self.num_draws = low, high, int(low.num_draws)

    def propose(self, context: Context) -> Tensor:
        """Returns the mean of the subgoal, [..., R]."""
        subgoal: Tensor = self.high(context)
        return subgoal

    def towards(self, context: Context, subgoal: Tensor) -> Context:
        """Returns the context of the low level."""
        return {"observation": context["observation"], "goal": of_length_root(subgoal)}

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the low level's action towards the proposed subgoal."""
        action, logp = self.low.act(self.towards(context, self.propose(context)), uniform)
        return action, logp

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the log-probabilities of the recorded decisions under both levels together."""
        return self.score_towards(batch, self.propose(batch.context), needs)

    def score_towards(self, batch: Experience, subgoal: Tensor, needs: frozenset[Need]) -> Scored:
        """Returns the log-probabilities of the low level alone, towards given subgoals [B, T, R]."""
        scored: Scored = self.low.score(replace(batch, context=self.towards(batch.context, subgoal)), needs)
        return scored


@dataclass(frozen=True)
class Hierarchical(ActorHead):
    """Two levels (HIQL, arXiv:2307.11949): subgoals of `size` numbers, and actions towards them."""

    size: int = 10

    def on(self, body: Body, spec: Spec) -> nn.Module:
        """Returns the actor for this task."""
        need_goal(spec, "Hierarchical")
        reach = Box((-(self.size**0.5),) * self.size, (self.size**0.5,) * self.size)
        low = Distribution().on(body, replace(spec, goal=reach))
        return TwoLevels(low, body.outputs(spec, Ask((self.size,), activation=nn.ReLU)))
