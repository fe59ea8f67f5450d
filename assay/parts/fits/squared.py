"""Regression by squared errors: mean, expectiles, squares up to a limit. Axes: B sequences, T decisions, N critics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Regressed
from assay.core.slots import Prediction, Regression, View


@dataclass(frozen=True)
class Squared(Regression):
    """(prediction - y)^2 / 2, whose minimiser is the mean.

    Not Huber: for large values a Huber loss fits a median, the few terminal steps are outvoted, and values grow without
    bound. Degenerate: a prediction equal to its target has loss 0 and no gradient. Source: by definition. Assumes that
    the mean of the targets is what is wanted.
    """

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the squared errors of every member of an ensemble."""
        value = of(view.model(of.model), rows)
        return Regressed(0.5 * (value - target).square(), value)


@dataclass(frozen=True)
class Expectile(Regression):
    """|level - 1(u < 0)| * u^2,  u = y - prediction: IQL (arXiv:2110.06169).

    The prediction converges to the expectile of the targets. Degenerate: level 1/2 is their mean, level -> 1 their
    maximum, level -> 0 their minimum. Source: Newey & Powell 1987. Assumes that the spread of the targets comes from
    actions, not from chance.
    """

    level: float = 0.7

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        value = of(view.model(of.model), rows)
        gap = target - value
        return Regressed(torch.where(gap < 0, 1.0 - self.level, self.level) * gap.square(), value)


@dataclass(frozen=True)
class Huber(Regression):
    """d^2 / 2b if |d| < b, else |d| - b / 2, d = y - prediction, b = 1 / sigma^2: gradients of at most 1.

    Degenerate: as sigma falls to 0 it is sigma^2 times half the squared error, as sigma grows the absolute error.
    Source: Huber 1964; arXiv:2310.12955. Assumes targets in units of which sigma is a size.
    """

    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not self.sigma > 0.0:
            raise AssayError(f"Huber.sigma is {self.sigma}. Use a number above 0, such as 1")

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the errors of every member of an ensemble."""
        value = of(view.model(of.model), rows)
        limit, gap = 1.0 / self.sigma**2, (value - target).abs()
        return Regressed(torch.where(gap < limit, 0.5 * gap.square() / limit, gap - 0.5 * limit), value)
