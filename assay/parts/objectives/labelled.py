"""Policy losses that classify answers as right or wrong by how much likelier the policy has made them.

Axes: B sequences, T decisions, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from assay.core.record import Experience, Loss, Need
from assay.core.score_range import RIGHT
from assay.core.slots import LabelLoss, Objective, RatioLevel, View
from assay.ops import groups
from assay.parts.objectives.ratio import ProductRatio, of_rows


@dataclass(frozen=True)
class CrossEntropy(LabelLoss):
    """-log sigmoid(score) for right answers, -log sigmoid(-score) for wrong ones, as a mean over answers.

    `balanced` gives both classes of a group the same total weight, G / (2 n) each. Degenerate: a group of one class has
    weight 1. Source: arXiv:2509.02522. Assumes labels right and wrong.
    """

    balanced: bool = False

    def __call__(self, score_B: Tensor, right_B: Tensor, by_group: groups.Groups) -> Tensor:
        loss = softplus(score_B) - torch.where(right_B, score_B, 0.0)
        if not self.balanced:
            return loss
        rate = groups.mean(right_B.to(score_B.dtype), by_group)
        weight = 0.5 / torch.where(right_B, rate, 1.0 - rate)
        return loss * torch.where((rate > 0) & (rate < 1), weight, 1.0)

    def count(self, by_group: groups.Groups) -> Tensor:
        return by_group.share.sum()


@dataclass(frozen=True)
class OutcomeAsLabel(Objective):
    """Classifies answers by score = scale * log-ratio of the whole answer to the policy that gave it.

    `level` is the sum over its decisions (ProductRatio) or their mean (SequenceRatio); `centred` subtracts the mean
    score of the group's other answers. An outcome above 1/2 is right. No advantage is read. Degenerate: no answer gives
    sum 0 and count 0. Source: arXiv:2509.02522; arXiv:2602.05630. Assumes several answers of each prompt.
    """

    level: RatioLevel = ProductRatio()
    scale: float = 1.0
    centred: bool = False
    loss: LabelLoss = CrossEntropy()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    together: ClassVar[str | None] = "group"
    reads_shares: ClassVar[bool] = True
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "the outcome is a label; the column `advantage` is not read"}

    def count(self, batch: Experience) -> Tensor:
        return self.loss.count(groups.row_groups(batch))

    def __call__(self, batch: Experience, view: View) -> Loss:
        by_group, right = groups.row_groups(batch), groups.outcome(batch) > RIGHT
        score = self.scale * of_rows(self.level(view.scored.logp, batch), batch)
        if self.centred:
            score = score - groups.mean_of_others(score, by_group)
        share = by_group.share.to(score.dtype)
        total = (self.loss(score, right, by_group) * share).sum()
        known = (((score.detach() > 0) == right) * share).sum(), share.sum()
        return Loss(total, self.count(batch), {"label_accuracy": known})
