"""A scale and weights of groups by their difficulty. Axes: B rows, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import CreditWeight, RowStatistic
from assay.ops import groups


@dataclass(frozen=True)
class MeanAbsoluteDeviation(RowStatistic):
    """Mean of |R - mean R| in the group plus `epsilon` over its size."""

    epsilon: float = 1e-4

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the deviations of the groups, never 0."""
        by_group = groups.row_groups(experience)
        size_B = groups.total(by_group.share, by_group)[by_group.index].to(outcome_B.dtype).clamp(min=1)
        return groups.mean((outcome_B - groups.mean(outcome_B, by_group)).abs(), by_group) + self.epsilon / size_B


@dataclass(frozen=True)
class HarderMore(CreditWeight):
    """n softmax(-mean outcome / temperature) over the n groups with an advantage; their mean weight is 1.

    Degenerate: an infinite temperature, or equal groups, give weight 1.
    """

    temperature: float = 2.0
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the weights are a softmax over the groups of the batch"}

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        """Returns the weight of each row, [B, 1]."""
        by_group, outcome_B = groups.row_groups(experience), groups.outcome(experience)
        has_signal = groups.any_of(groups.differs(outcome_B, by_group), by_group)
        share_B = torch.where(has_signal, by_group.share, 0.0).to(outcome_B.dtype)
        once_B = share_B / groups.total(share_B, by_group)[by_group.index].clamp(min=1e-6)  # 1 for each group
        score_B = (-groups.mean(outcome_B, by_group) / self.temperature).exp()
        weight_B = score_B * once_B.sum() / (score_B * once_B).sum().clamp(min=1e-12)
        return torch.where(has_signal, weight_B, 1.0).unsqueeze(1)
