"""Constraints by multipliers: the price of a cost rises while its limit is broken. Axes: B, T, K costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.ops import returns
from assay.slots import Annotation
from assay.types import AssayError, Experience, Need, State


@dataclass(frozen=True)
class Lagrange:
    """Prices a cost with a multiplier that rises while the limit is broken.

    advantage <- (advantage - multiplier * cost_advantage) / (1 + multiplier)
    multiplier <- max(0, multiplier + rate * (J_C - limit))

    J_C is the mean cost of an episode that ended in this batch (of a row where none ended). The cost advantage is the
    discounted cost to go, centred over the batch. Follows the credit; reads cost channel `channel`.
    """

    limit: float
    rate: float = 0.05
    discount: float = 0.99
    channel: int = 0
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()

    def init(self) -> State:
        """The multiplier starts at 0."""
        return {"multiplier": 0.0}

    @torch.no_grad()
    def __call__(self, experience: Experience, state: State) -> Experience:
        """Merges the cost into `advantage`."""
        cost, mask = self.cost(experience), experience.mask
        to_go = returns.discounted_returns(cost, mask, experience.terminal, experience.truncated, self.discount)
        centred = (to_go - (to_go * mask).sum() / mask.sum().clamp(min=1)) * mask
        multiplier = state["multiplier"]
        advantage = (experience.column("advantage") - multiplier * centred) / (1.0 + multiplier)
        return experience.add({"advantage": advantage})

    def observe(self, experience: Experience, state: State) -> Mapping[str, float]:
        """Moves the multiplier by how far the episodes' cost is from the limit."""
        ended = (experience.terminal | experience.truncated) & experience.mask
        episodes = max(1, int(ended.sum()), len(experience) if not bool(ended.any()) else 0)
        mean_cost = float((self.cost(experience) * experience.mask).sum()) / episodes
        state["multiplier"] = max(0.0, state["multiplier"] + self.rate * (mean_cost - self.limit))
        return {"cost": mean_cost, "multiplier": state["multiplier"]}

    def cost(self, experience: Experience) -> Tensor:
        """The cost channel [B, T]."""
        if experience.cost is None:
            raise AssayError(
                "this constraint needs costs, and the task gives none; choose a task with costs or drop the constraint"
            )
        return experience.cost[..., self.channel]
