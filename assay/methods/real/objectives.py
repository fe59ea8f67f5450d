"""A softmax of each class against an anchor. Axes: B sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.slots import LabelLoss
from assay.ops import groups


@dataclass(frozen=True)
class AgainstAnchor(LabelLoss):
    """log(1 + sum over right of e^-score) + log(1 + sum over wrong of e^score), as a mean over groups: each class is
    a softmax against an anchor of score 0 (arXiv:2602.05630).

    A group of one class has no loss and is counted.
    """

    def __call__(self, score_B: Tensor, right_B: Tensor, by_group: groups.Groups) -> Tensor:
        """Returns the loss of each row: its class's, over the number of answers in the class."""
        share = by_group.share.to(score_B.dtype)
        loss = torch.zeros_like(score_B)
        sizes = [groups.total(share * one, by_group)[by_group.index] for one in (right_B, ~right_B)]
        for sign, is_class, size in zip((-1.0, 1.0), (right_B, ~right_B), sizes, strict=True):
            odds = (sign * score_B).clamp(max=80.0).exp() * share * is_class
            of_class = torch.log1p(groups.total(odds, by_group))[by_group.index] / size.clamp(min=1.0)
            loss = loss + torch.where(is_class, of_class, 0.0)
        return torch.where((sizes[0] > 0) & (sizes[1] > 0), loss, 0.0)

    def count(self, by_group: groups.Groups) -> Tensor:
        """Returns the number of groups with an answer."""
        return (groups.total(by_group.share, by_group) > 0).sum()
