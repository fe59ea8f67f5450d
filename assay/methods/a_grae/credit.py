"""Weights of groups by how many of their answers are right. Axes: B rows, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import CreditWeight
from assay.ops import groups

EPSILON = 1e-6


@dataclass(frozen=True)
class BreakSymmetry(CreditWeight):
    """(1 - P) / (2 (1 - sqrt p)) + P / (2 sqrt p), times min(1, P / alpha) where the advantage is positive.

    p is the group's mean outcome and P the mean of p over the groups, both between 0 and 1.
    """

    alpha: float = 1.0
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the weights depend on the right answers of the whole batch"}

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        """Returns the weight of each decision, [B, T]."""
        by_group, outcome = groups.row_groups(experience), groups.outcome(experience)
        rate_B = groups.mean(outcome, by_group).clamp(0.0, 1.0)
        share_B = by_group.share.to(rate_B.dtype)
        once_B = share_B / groups.total(share_B, by_group)[by_group.index].clamp(min=EPSILON)  # 1 for each group
        overall = (rate_B * once_B).sum() / once_B.sum().clamp(min=EPSILON)
        root_B = rate_B.sqrt()
        weight_B = 0.5 * ((1.0 - overall) / (1.0 - root_B + EPSILON) + overall / (root_B + EPSILON))
        damped = (overall / self.alpha).clamp(max=1.0)
        return weight_B.unsqueeze(1) * torch.where(advantage_BT > 0, damped, 1.0)
