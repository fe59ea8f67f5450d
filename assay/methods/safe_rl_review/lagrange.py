"""Constraints by multipliers: the price of a cost rises while its limit is broken. Axes: B, T, K costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Annotation, Constraint, Scene
from assay.parts.constraints.cost import CostToGo, channel_of, episode_cost, priced


@dataclass(frozen=True)
class Lagrange(Constraint):
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
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    def init(self, scene: Scene) -> State:
        """The multiplier starts at 0."""
        return {"multiplier": 0.0}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Merges the cost into `advantage`."""
        caused = CostToGo(self.discount)(experience, channel_of(experience, self.channel))["cost_advantage"]
        merged = experience.add({"advantage": priced(experience, state["multiplier"], caused)})
        for name, value in self.move(merged, state).items():
            scene.log(name, value)
        return merged

    def move(self, experience: Experience, state: State) -> Mapping[str, float]:
        """Moves the multiplier by how far the episodes' cost is from the limit."""
        cost = episode_cost(experience, self.channel)
        state["multiplier"] = max(0.0, state["multiplier"] + self.rate * (cost - self.limit))
        return {"cost": cost, "multiplier": state["multiplier"]}
