"""Regression by squared errors: mean and expectiles. Axes: B sequences, T decisions, N critics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience, Regressed
from assay.core.slots import Prediction, Regression, View


@dataclass(frozen=True)
class Squared(Regression):
    """(prediction - y)^2 / 2, whose minimiser is the mean.

    Not Huber: for large values a Huber loss fits a median, the few terminal steps are outvoted, and values grow
    without bound. Degenerate: a prediction equal to its target has loss 0 and no gradient.
    """

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the squared errors of every member of an ensemble."""
        value = of(view.model(of.model), rows)
        return Regressed(0.5 * (value - target).square(), value)


@dataclass(frozen=True)
class Expectile(Regression):
    """|level - 1(u < 0)| * u^2,  u = y - prediction: IQL (arXiv:2110.06169).

    The prediction converges to the expectile of the targets. Degenerate: level 1/2 is their mean, level -> 1 their
    maximum, level -> 0 their minimum.
    """

    level: float = 0.7

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        value = of(view.model(of.model), rows)
        gap = target - value
        return Regressed(torch.where(gap < 0, 1.0 - self.level, self.level) * gap.square(), value)
