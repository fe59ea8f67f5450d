"""The deviation of a group's outcomes as a scale of credit. Axes: B rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import RowStatistic
from assay.ops import groups


@dataclass(frozen=True)
class PopulationDeviation(RowStatistic):
    """Standard deviation (n) of the group's outcomes: sqrt(r (1 - r)) for outcomes 0 and 1 with pass rate r.

    Without an epsilon, so that advantages are functions of r alone. Degenerate: 1 if outcomes are equal.
    """

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the group deviations, never 0."""
        by_group = groups.row_groups(experience)
        centred = outcome_B - groups.mean(outcome_B, by_group)
        deviation = groups.mean(centred.square(), by_group).sqrt()
        return torch.where(groups.differs(outcome_B, by_group) & (deviation > 0), deviation, 1.0)
