"""Expectile regression of values of goals. Axes: B sequences, T columns, N heads, R numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss
from assay.core.slots import CriticLoss, View
from assay.parts.aggregations import OverTransitions
from assay.parts.critics.q import one_step_target


def heads(value: Tensor) -> Tensor:
    """Values [N, B, T]; AssayError where a critic has no heads."""
    if value.dim() != 3:
        raise AssayError("ExpectileTd needs a critic with heads, [N, B, T]; use GoalValue()")
    return value


@dataclass(frozen=True)
class ExpectileTd(OverTransitions, CriticLoss):
    """sum_i w (y_i - V_i(s, g))^2,  y_i = r + discount * V'_i(s', g);  w = level where A >= 0, else 1 - level

        A = r + discount * min_i V'_i(s', g) - mean_i V'_i(s, g)

    The implicit value learning of HIQL (arXiv:2307.11949): V' is the copy `<critic>_target`, and each head has targets
    of its own. level 1/2 is half the squared error. What a step is, the rows say: s' may be many steps on.
    """

    critic: str = "value"
    discount: float = 0.99
    level: float = 0.7

    def target(self, batch: Experience, view: View) -> tuple[Tensor, Tensor]:
        """(y [N, B, T], w [B, T]) for the columns of `batch.now`."""
        now, copy = batch.now, view.model(f"{self.critic}_target")
        with torch.no_grad():
            target = one_step_target(now, heads(copy(batch.after.context)), self.discount)
            # The smallest head has the smallest target: where nothing follows, all heads have the same.
            gain = target.amin(0) - heads(copy(now.context)).mean(0)
            return target, (1.0 - self.level) + (2.0 * self.level - 1.0) * (gain >= 0).to(gain)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Weighted squared errors of all heads."""
        now, (target, weight) = batch.now, self.target(batch, view)
        value = heads(view.model(self.critic)(now.context))
        loss = ((value - target).square() * weight * now.weight).sum()
        metrics = {self.critic: ((value.detach().mean(0) * now.weight).sum(), now.num_decisions)}
        return Loss(loss, self.count(batch), metrics)
