"""A penalty on the variance of the ratio, with a multiplier that follows it. Axes: B rows, T decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Loss, Need, State
from assay.core.slots import Aggregation, Prepare, Regularizer, Scene, View
from assay.parts.aggregations import TokenMean, Weighed
from assay.parts.constraints.multiplier import Ascent, Rule
from assay.parts.objectives.trust import bounded_ratio

VARIANCE = "ratio_variance"
"""The metric of the updates that the multiplier follows: mean (ratio - 1)^2."""


@dataclass(frozen=True)
class FollowVariance(Prepare):
    """Writes `variance_weight` [B]: the multiplier, `start` in the first step; after the updates of every step the rule
    moves it by their mean (ratio - 1)^2 over `target`, against 1. It is state. Rate 0 keeps it fixed.
    """

    target: float = 0.01
    rule: Rule = Ascent(0.5)
    start: float = 1.0
    writes: ClassVar[tuple[str, ...]] = ("variance_weight",)

    def init(self, scene: Scene) -> State:
        """Returns the rule's state with the first multiplier."""
        return {**self.rule.init(1.0), "multiplier": self.start}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes the multiplier into every row."""
        scene.log("multiplier", state["multiplier"])
        weight = experience.reward.new_full((len(experience),), state["multiplier"])
        return experience.add({"variance_weight": weight})

    def updated(self, metrics: Mapping[str, float], state: State) -> None:
        """Moves the multiplier; a step without updates leaves it."""
        if VARIANCE in metrics:
            self.rule.move(metrics[VARIANCE] / self.target, 1.0, state)


@dataclass(frozen=True)
class RatioVariance(Weighed, Regularizer):
    """variance_weight * (ratio - 1)^2 at each decision: the second moment around 1, not around the batch's mean.

    With the loss -ratio * A the coefficient of grad log pi is ratio (A - 2 weight (ratio - 1)), which reverses beyond
    1 + A / (2 weight). Degenerate: at ratio 1 it has no gradient.
    """

    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    divergence: ClassVar[bool] = False  # zero at the behaviour policy, not at the reference
    reads: ClassVar[tuple[str, ...]] = ("variance_weight",)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over decisions."""
        moved = (view.scored.logp - batch.logp.detach()) * batch.mask
        square = (bounded_ratio(moved) - 1.0).square()
        weighed = square * self.aggregate.weigh(batch) * batch.column("variance_weight").unsqueeze(1)
        metrics = {VARIANCE: ((square.detach() * batch.weight).sum(), batch.num_decisions)}
        return Loss(weighed.sum(), self.count(batch), metrics)
