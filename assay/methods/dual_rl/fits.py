"""Implicit maximum: fits a value as a maximum over targets without maximising. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from assay.core.record import Experience, Regressed
from assay.core.slots import Prediction, Regression, View
from assay.methods.dual_rl.conjugates import Conjugate, TotalVariation


@dataclass(frozen=True)
class ImplicitMaximum(Regression):
    """level * F(z) - (1 - level) * z,  z = (y - V(s)) / scale, at most `clip`.

    With y = min_i Q'_i(s, a), V converges to an implicit maximum over recorded actions (f-DVL, arXiv:2302.08560).
    With F of total variation it is the quantile of level (2 level - 1) / level; with reverse KL and level 1/2 it is
    XQL's (arXiv:2301.02328) scale * log E exp(Q / scale), where `clip` cuts the gradient as its authors do.
    Degenerate: with total variation V falls to the lowest value at level 1/2, and without bound below it.
    """

    divergence: Conjugate = TotalVariation()
    level: float = 0.8
    scale: float = 1.0
    clip: float = 1e9

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the loss of the dual."""
        value = of(view.model(of.model), rows)
        z = ((target - value) / self.scale).clamp(max=self.clip)
        return Regressed(self.level * self.divergence.surrogate(z) - (1.0 - self.level) * z, value)
