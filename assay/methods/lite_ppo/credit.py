"""The deviation of a whole batch. Axes: B rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import RowStatistic
from assay.ops import groups


@dataclass(frozen=True)
class BatchDeviation(RowStatistic):
    """Standard deviation (n - 1) of the outcomes of all episodes plus `epsilon`, not of the centred outcomes."""

    epsilon: float = 1e-6
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the scale is the deviation of the whole batch"}

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the deviation for every row, never 0."""
        share = groups.row_groups(experience).share.to(outcome_B.dtype)
        mean = (outcome_B * share).sum() / share.sum().clamp(min=1)
        variance = ((outcome_B - mean).square() * share).sum() / (share.sum() - 1).clamp(min=1)
        return (variance.sqrt() + self.epsilon).expand_as(outcome_B)
