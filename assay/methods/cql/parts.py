"""CQL's penalty with a learned weight. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from assay.core.recipe import Recipe
from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, View
from assay.models.model import Temperature
from assay.parts.aggregations import OverTransitions
from assay.parts.critics.conservative import Conservative, ConservativeChoices
from assay.parts.sources.logged import Log
from assay.recipes.conservative import cql
from assay.recipes.defaults import CONTINUOUS, Defaults


@dataclass(frozen=True)
class HeldGap(OverTransitions, CriticLoss):
    """multiplier * (gap - threshold), descended by the critics and ascended by the multiplier (arXiv:2006.04779).

    The gap is the penalty with weight 1, averaged over the critics: the multiplier grows while values outside the
    data exceed those of the data by more than the threshold, and falls otherwise. It is positive by its form.
    """

    penalty: CriticLoss = Conservative(1.0)
    threshold: float = 5.0
    multiplier: str = model_name("temperature")
    breaks: ClassVar[dict[str, str]] = Conservative.breaks

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted penalty minus the multiplier's gain, neither with the other's gradient."""
        found, multiplier = self.penalty(batch, view), view.model(self.multiplier)()
        (gap, count), decisions = found.metrics["conservative_gap"], self.count(batch)
        loss = multiplier.detach() * found.sum - multiplier * (gap - self.threshold * count)
        metrics = {**found.metrics, "multiplier": (multiplier.detach() * decisions, decisions)}
        return Loss(loss, decisions, metrics)


def cql_lagrange(world: Defaults = CONTINUOUS, log: Log | None = None, threshold: float = 5.0) -> Recipe:
    """CQL whose weight is a Lagrange multiplier that holds the gap at the threshold."""
    base = cql(world, log)
    penalty = ConservativeChoices(1.0) if world.discrete else Conservative(1.0)
    first = base.stages[0]
    both = (first.critic[0], HeldGap(penalty, threshold, "multiplier"))
    held = replace(first, trains=(*first.trains, "multiplier"), critic=both)
    critics = {**base.critics, "multiplier": Temperature(1.0)}
    return replace(base, name="cql-lagrange", critics=critics, stages=(held, *base.stages[1:]))
