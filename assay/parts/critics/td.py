"""The loss of a critic: a target, how it is fitted, and which prediction is fitted to it. Axes: B, T, N critics.

loss = coefficient * sum over decisions and members of weight * fit(prediction, target)

PPO:  Td(Column("return"), Squared(), OfState("value"))
DQN:  Td(DoubleQ(), Squared(), OfChoice("actor"))
TD3:  Td(SmoothedTwin(), Squared(), OfAction("q"))
IQL:  Td(RecordedAction(), Expectile(0.7), OfState("value")), Td(NextValue(), Squared(), OfAction("q"))
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Annotation, CriticLoss, Prediction, Regression, Target, View
from assay.parts.aggregations import TokenMean
from assay.parts.fits.squared import Expectile, Squared
from assay.parts.predictions import OfAction, OfChoice, OfState
from assay.parts.targets.one_step import DoubleQ, NextValue, OwnAction, SmoothedTwin, SoftTwin
from assay.parts.targets.recorded import Column, RecordedAction


@dataclass(frozen=True)
class Td(CriticLoss):
    """Fits a prediction to a target; the aggregation weights decisions, members of an ensemble are summed.

    Reports the mean predicted value `<title>_mean` and the mean squared error `<title>_error`, averaged over the
    members, where the title is the prediction's: q_error, value_mean. Degenerate: no decision with a target gives sum 0
    and count 0. Source: Sutton 1988. Assumes that the target carries no gradient.
    """

    target: Target = NextValue()
    fit: Regression = Squared()
    of: Prediction = OfAction("q")
    aggregate: Aggregation = TokenMean()
    coefficient: float = 1.0
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"target": Column("return"), "of": OfState("value")},
        {"target": RecordedAction(), "fit": Expectile(), "of": OfState("value")},
        {"target": DoubleQ(), "of": OfChoice("actor")},
        {"target": SmoothedTwin()},
        {"target": SoftTwin()},
        {"target": OwnAction(subset=1)},
    )

    @property
    def reads(self) -> Collection[str]:
        return self.target.reads

    @property
    def together(self) -> str | None:
        return self.aggregate.together

    @property
    def title(self) -> str:
        return self.of.title

    def count(self, batch: Experience) -> Tensor:
        return self.aggregate.count(self.target.rows(batch))

    def __call__(self, batch: Experience, view: View) -> Loss:
        rows, target = self.target.rows(batch), self.target(batch, view)
        found = self.fit(self.of, rows, target, view)
        weight, count = self.aggregate.weigh(rows), self.aggregate.count(rows)
        value, title = found.value.detach(), self.of.title
        numbers = {f"{title}_mean": value, f"{title}_error": (value - target).square(), **found.metrics}
        metrics = {name: ((over_members(one) * weight).sum(), count) for name, one in numbers.items()}
        return Loss(self.coefficient * (found.loss * weight).sum(), count, metrics)


def over_members(number: Tensor) -> Tensor:
    """Averages over the members of an ensemble, [B, T]."""
    return number.mean(0) if number.dim() > 2 else number
