"""A constraint without a multiplier: the advantage is projected onto what the limit allows. Axes: B, T, K costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.parts.constraints.cost import CostCredit, CostToGo
from assay.parts.constraints.multiplier import Multiplier


@dataclass(frozen=True)
class Violation:
    """multiplier <- max(0, J_C - limit): no memory beyond the previous batch."""

    not_a_part: ClassVar[str] = "a setting of a constraint"

    def init(self, limit: float) -> State:
        """Returns the state for a cost of 0."""
        return {"multiplier": 0.0, "excess": -limit}

    def move(self, level: float, limit: float, state: State) -> None:
        """Stores the distance of the episodes' cost from the limit."""
        state["excess"] = level - limit
        state["multiplier"] = max(0.0, state["excess"])


@dataclass(frozen=True)
class Projected:
    """Projects to the nearest advantage along which the cost falls, to first order, as the limit requires.

        min |A' - A|^2  subject to  <A', C> / n <= -rate * (J_C - limit)
        A' = A - max(0, (<A, C> / n + rate * (J_C - limit)) / (<C, C> / n)) * C

    CPO and PCPO (arXiv:1705.10528, 2010.03152) with the Euclidean metric; C is the cost advantage, J_C that of the
    previous batch. Degenerate: enough slack, or C = 0, leaves A unchanged.
    """

    rate: float = 1.0
    not_a_part: ClassVar[str] = "a setting of a constraint"
    breaks: ClassVar[dict[str, str]] = {
        "lagged": "it has no price: it projects along this batch's costs, and the limit enters by the batch before"
    }

    def __call__(self, experience: Experience, cost_advantage: Tensor, state: State) -> Tensor:
        """Returns the projected advantage, [B, T]."""
        cost, advantage = cost_advantage, experience.column("advantage")
        excess = mean_product(advantage, cost, experience) + self.rate * state["excess"]
        share = excess.clamp(min=0.0) / mean_product(cost, cost, experience).clamp(min=1e-12)
        return advantage - share * cost


def mean_product(first: Tensor, second: Tensor, experience: Experience) -> Tensor:
    """Returns <first, second> over the decisions, divided by their number; 0 without any."""
    return torch.where(experience.mask, first * second, 0.0).sum() / experience.num_decisions.clamp(min=1)


def projection(limit: float = 1.0, rate: float = 1.0, credit: CostCredit = CostToGo()) -> Multiplier:
    """Returns the constraint with a projected advantage."""
    return Multiplier(limit, Violation(), credit, Projected(rate))
