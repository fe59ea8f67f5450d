"""A regularizer towards the behaviour policy. Axes: B sequences, T decisions.

No reference model: the distance is computed from the recorded log-probabilities of the recorded decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Regularizer, Schedule, View, number
from assay.ops import divergences
from assay.parts.aggregations import TokenMean, Weighed


def forward(log_ratio: Tensor) -> Tensor:
    """-(log pi - log old): unbiased for KL(old || pi) on samples of old; its gradient is that of the likelihood."""
    return -log_ratio


@dataclass(frozen=True)
class KlToBehaviour(Weighed, Regularizer):
    """coefficient * estimator(log pi - log pi_old) at each decision, with gradient.

    `ops.divergences.k2`: OPMD's penalty (Kimi k1.5), half a square. `forward`: AsymRE's (arXiv:2506.20520), which is
    REINFORCE with the baseline lowered by `coefficient`; as a loss it may be negative.
    """

    coefficient: float | Schedule = 0.1
    estimator: Callable[[Tensor], Tensor] = divergences.k2
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    divergence: ClassVar[bool] = False  # zero at the behaviour policy, not at the reference

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over decisions."""
        log_ratio = torch.where(batch.mask, view.scored.logp - batch.logp.detach(), 0.0)
        value = self.estimator(log_ratio) * self.aggregate.weigh(batch)
        return Loss(number(self.coefficient) * value.sum(), self.count(batch))
