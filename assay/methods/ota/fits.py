"""Expectile regression with the sign taken from a target network. Axes: B sequences, T columns, N heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Regressed
from assay.core.settings import model_name
from assay.core.slots import Prediction, Regression, View


@dataclass(frozen=True)
class ExpectileByTarget(Regression):
    """w (y_i - V_i(s, g))^2 of each head i;  w = level where A >= 0, else 1 - level;  A = min_i y_i - mean_i V'_i(s,
    g)

    The implicit value learning of HIQL (arXiv:2307.11949): V' is the target network `copy`, and each head has its own
    target. level 1/2 is half the squared error.
    """

    level: float = 0.7
    copy: str = model_name("value_target")

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the weighted squared errors of all heads."""
        if target.dim() != 3:
            raise AssayError("ExpectileByTarget needs a critic with heads, [N, B, T]. Use GoalValue()")
        value = of(view.model(of.model), rows)
        with torch.no_grad():
            # The smallest head has the smallest target; after a terminal step all heads have the same one.
            gain = target.amin(0) - of(view.model(self.copy), rows).mean(0)
            weight = (1.0 - self.level) + (2.0 * self.level - 1.0) * (gain >= 0).to(gain)
        return Regressed((value - target).square() * weight, value)
