"""Weights of wrong answers by confidence. Axes: B rows, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from assay.core.record import Experience, Need
from assay.core.slots import CreditWeight
from assay.ops import groups


@dataclass(frozen=True)
class ConfidencePenalty(CreditWeight):
    """1 + alpha softplus(c) where the advantage is negative, else 1; c is the log-ratio of the whole answer to the
    reference, over its length if `per_decision`. Degenerate: alpha 0 changes nothing.
    """

    alpha: float = 1.0
    per_decision: bool = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        """Returns the weight of each decision, [B, T]."""
        moved = (experience.logp - experience.column("logp_ref")) * experience.mask
        confidence = groups.over_episode(moved.sum(1), experience)
        if self.per_decision:
            confidence = confidence / groups.over_episode(experience.mask.sum(1), experience).clamp(min=1)
        return torch.where(advantage_BT < 0, 1.0 + self.alpha * softplus(confidence).unsqueeze(1), 1.0)
