"""A cost with a limit: cost credit, update rule of the multiplier, and merging of the cost into the advantage.

Axes: B sequences, T decisions, K costs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.columns import merge_columns
from assay.core.metrics import Metric
from assay.core.record import Experience, Need, State
from assay.core.slots import Annotation, Constraint, Scene
from assay.parts.constraints.cost import CostCredit, CostToGo


# ---------------------------------------------------------------------------------------------------- rules
class Rule(Protocol):
    """Updates the multiplier of a constraint.

    Source: arXiv:2007.03964. Assumes one number for each cost. Degenerate: at the limit nothing moves.
    """

    def init(self, limit: float) -> State:
        """Returns the state at the start of a run, including `multiplier`."""

    def move(self, level: float, limit: float, state: State) -> None:
        """Updates `multiplier` from the difference between the level of the cost and the limit."""


@dataclass(frozen=True)
class Ascent:
    """multiplier <- max(0, multiplier + rate * (J_C - limit)): gradient ascent on the dual.

    Degenerate: rate 0 only reports. Source: Altman 1999, constrained MDPs. Assumes a rate small enough for J_C to
    follow.
    """

    rate: float = 0.05
    not_a_part: ClassVar[str] = "a setting of a constraint"

    def init(self, limit: float) -> State:
        """Returns a multiplier of 0."""
        return {"multiplier": 0.0}

    def move(self, level: float, limit: float, state: State) -> None:
        """Takes one gradient step."""
        state["multiplier"] = max(0.0, state["multiplier"] + self.rate * (level - limit))


@dataclass(frozen=True)
class Pid:
    """Updates the multiplier from the violation, its sum and its growth (PID control, arXiv:2007.03964).

        e = J_C - limit;  I <- max(0, I + e);  D = max(0, J_C - previous J_C)
        multiplier <- max(0, proportional * e + integral * I + derivative * D)

    proportional = derivative = 0 is `Ascent` with rate `integral`. Degenerate: the first batch has D = 0. Assumes
    batches large enough that the growth of J_C is more than noise.
    """

    proportional: float = 0.05
    integral: float = 0.005
    derivative: float = 0.05
    not_a_part: ClassVar[str] = "a setting of a constraint"

    def init(self, limit: float) -> State:
        """Returns zeros; no level has been seen."""
        return {"multiplier": 0.0, "sum": 0.0, "before": 0.0, "batches": 0}

    def move(self, level: float, limit: float, state: State) -> None:
        """Takes one step of the controller."""
        error, growth = level - limit, max(0.0, level - state["before"]) if state["batches"] else 0.0
        state["sum"] = max(0.0, state["sum"] + error)
        state["multiplier"] = max(
            0.0, self.proportional * error + self.integral * state["sum"] + self.derivative * growth
        )
        state["before"], state["batches"] = level, state["batches"] + 1


# ---------------------------------------------------------------------------------------------------- merging
class Merge(Protocol):
    """Merges the cost advantage into the advantage.

    Source: Ray et al. 2019. Assumes that both advantages are written. Degenerate: a multiplier of 0 changes nothing.
    """

    def __call__(self, experience: Experience, cost_advantage: Tensor, state: State) -> Tensor:
        """Returns the advantage [B, T]."""


@dataclass(frozen=True)
class Priced:
    """advantage <- (advantage - multiplier * cost_advantage) / (1 + multiplier): the scale stays bounded.

    Degenerate: a multiplier of 0 leaves the advantage as it is. Source: arXiv:2007.03964. Assumes that both advantages
    have comparable units.
    """

    not_a_part: ClassVar[str] = "a setting of a constraint"

    def __call__(self, experience: Experience, cost_advantage: Tensor, state: State) -> Tensor:
        """Returns the merged advantage, [B, T]."""
        price = state["multiplier"]
        return (experience.column("advantage") - price * cost_advantage) / (1.0 + price)


@dataclass(frozen=True)
class Multiplier(Constraint):
    """Holds a cost at a limit: merges it into `advantage` with the multiplier so far, then updates the multiplier.

    J_C is the mean cost of the whole episodes that ended in this batch, unless the cost credit defines another level.
    Place it after the credit; it reads cost channel `channel`, and reports `cost` and `multiplier`, of a channel after
    the first with its number: `cost_1`. Degenerate: a batch without J_C, in which no episode ended, leaves the
    multiplier as it is. Source: Ray et al. 2019. Assumes that some policy keeps the limit.
    """

    limit: float = 1.0
    rule: Rule = Ascent()
    credit: CostCredit = CostToGo()
    merge: Merge = Priced()
    channel: int = 0
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"rule": Pid()},)

    @property
    def watches(self) -> tuple[Metric, ...]:
        """Metrics that are shown beside the curve."""
        return Metric(self.named("cost")), Metric(self.named("multiplier"))

    def named(self, metric: str) -> str:
        """Returns the name of a metric of this channel."""
        return f"{metric}_{self.channel}" if self.channel else metric

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        return self.credit.needs

    @property
    def writes(self) -> Collection[str]:
        return merge_columns(("advantage",), self.credit.writes)

    def init(self, scene: Scene) -> State:
        return self.rule.init(self.limit)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        columns = self.credit(experience, self.channel)
        advantage = self.merge(experience, columns["cost_advantage"], state)
        level, seen = self.credit.level(experience, self.channel)
        if level is not None:
            self.rule.move(level, self.limit, state)
        for name, value in {**seen, "multiplier": state["multiplier"]}.items():
            scene.log(self.named(name), value)
        return experience.add({**columns, "advantage": advantage})
