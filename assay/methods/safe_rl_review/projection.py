"""A constraint without a learned price: the step is projected onto what the limit allows. Axes: B, T, K costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Annotation, Constraint, Scene
from assay.parts.constraints.cost import CostCredit, CostToGo, channel_of, episode_cost, mean_product


@dataclass(frozen=True)
class Projection(Constraint):
    """The advantage nearest to the given one along which the cost, to first order, falls by what the limit asks for.

        min |A' - A|^2  subject to  <A', C> / n <= -rate * (J_C - limit)
        A' = A - max(0, (<A, C> / n + rate * (J_C - limit)) / (<C, C> / n)) * C

    CPO and PCPO (arXiv:1705.10528, 2010.03152) with the plain metric; C is the cost advantage, J_C of the batch before.
    Slack beyond what the step would spend leaves A as it is; C = 0 does too.
    """

    limit: float = 1.0
    rate: float = 1.0
    credit: CostCredit = CostToGo()
    channel: int = 0
    breaks: ClassVar[dict[str, str]] = {
        "lagged": "it has no price: it projects along this batch's costs, and the limit enters by the batch before"
    }
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        """As its cost credit says."""
        return self.credit.needs

    def init(self, scene: Scene) -> State:
        """As if nothing had cost anything; `multiplier` is the violation."""
        return {"multiplier": 0.0, "excess": -self.limit}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Projects `advantage`."""
        columns = self.credit(experience, channel_of(experience, self.channel))
        cost, advantage = columns["cost_advantage"], experience.column("advantage")
        excess = mean_product(advantage, cost, experience) + self.rate * state["excess"]
        share = excess.clamp(min=0.0) / mean_product(cost, cost, experience).clamp(min=1e-12)
        merged = experience.add({**columns, "advantage": advantage - share * cost})
        for name, value in self.move(merged, state).items():
            scene.log(name, value)
        return merged

    def move(self, experience: Experience, state: State) -> Mapping[str, float]:
        """Notes how far the episodes' cost is from the limit."""
        cost = episode_cost(experience, self.channel)
        state["excess"] = cost - self.limit
        state["multiplier"] = max(0.0, state["excess"])
        return {"cost": cost, "violation": state["multiplier"]}
