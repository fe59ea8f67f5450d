"""A multiplier under feedback control. Axes: B sequences, T decisions, K costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Annotation, Constraint, Scene
from assay.parts.constraints.cost import CostCredit, CostToGo, channel_of, episode_cost, priced


@dataclass(frozen=True)
class PidLagrange(Constraint):
    """Prices a cost with a multiplier that reacts to the violation, its sum and its growth (arXiv:2007.03964).

    advantage <- (advantage - multiplier * cost_advantage) / (1 + multiplier)
    e = J_C - limit;  I <- max(0, I + e);  D = max(0, J_C - J_C before)
    multiplier <- max(0, proportional * e + integral * I + derivative * D)

    proportional = derivative = 0 is gradient ascent on the dual: `Lagrange` with rate `integral`. The first batch has
    no growth. Follows the credit.
    """

    limit: float = 1.0
    proportional: float = 0.05
    integral: float = 0.005
    derivative: float = 0.05
    credit: CostCredit = CostToGo()
    channel: int = 0
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """As its cost credit says."""
        return self.credit.needs

    def init(self, scene: Scene) -> State:
        """Nothing seen yet."""
        return {"multiplier": 0.0, "sum": 0.0, "before": 0.0, "batches": 0}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Merges the cost into `advantage`."""
        columns = self.credit(experience, channel_of(experience, self.channel))
        advantage = priced(experience, state["multiplier"], columns["cost_advantage"])
        merged = experience.add({**columns, "advantage": advantage})
        for name, value in self.move(merged, state).items():
            scene.log(name, value)
        return merged

    def move(self, experience: Experience, state: State) -> Mapping[str, float]:
        """Moves the multiplier by how far the episodes' cost is from the limit."""
        cost = episode_cost(experience, self.channel)
        error, growth = cost - self.limit, max(0.0, cost - state["before"]) if state["batches"] else 0.0
        state["sum"] = max(0.0, state["sum"] + error)
        state["multiplier"] = max(
            0.0, self.proportional * error + self.integral * state["sum"] + self.derivative * growth
        )
        state["before"], state["batches"] = cost, state["batches"] + 1
        return {"cost": cost, "multiplier": state["multiplier"]}
