"""Policy losses that regress log-ratios of whole answers to their rewards. Axes: B sequences, T decisions, G groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Annotation, Objective, View
from assay.ops import groups


@dataclass(frozen=True)
class RegressLogRatio(Objective):
    """Mean over groups of mean_i (R_i - mean R - beta s_i)^2 / (2 beta), s the log-ratio of the answer.

    s is the log-ratio to the reference, or to the policy that answered without `reference` (mirror descent,
    arXiv:2501.12599). With `pairs` the group's mean of R - beta s is subtracted, which is the mean over all pairs of
    (d_i - d_j)^2 / (4 beta), d = R - beta s (CoPG, arXiv:2406.19185): its minimum is ref exp(R / beta) / Z for every
    behaviour policy with full support. The gradient is the mean of -(residual) grad log pi(y_i). Reads `reward`, not
    credit. Degenerate: a group of one is not counted. Assumes rewards of whole answers.
    """

    beta: float = 0.1
    reference: bool = True
    pairs: bool = True
    together: ClassVar[str | None] = "group"
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "regresses on rewards; the column `advantage` is not read"}

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        return frozenset({Need.LOGP, Need.REFERENCE} if self.reference else {Need.LOGP})

    def count(self, batch: Experience) -> Tensor:
        return is_counted(groups.row_groups(batch)).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        old = (batch.column("logp_ref") if self.reference else batch.logp).detach()
        log_ratio = groups.over_episode(((view.scored.logp - old) * batch.mask).sum(1), batch)
        by_group, reward = groups.row_groups(batch), groups.outcome(batch).detach()
        share = by_group.share.to(log_ratio.dtype)
        wanted = reward - self.beta * log_ratio
        residual = wanted - groups.mean(wanted if self.pairs else reward, by_group)
        size = groups.total(share, by_group) - float(self.pairs)
        counted = is_counted(by_group)
        squares = torch.where(counted, groups.total(residual.square() * share, by_group) / size.clamp(min=1), 0.0)
        metrics = {
            "residual": (squares.detach().sqrt().sum(), counted.sum()),
            "log_ratio": ((log_ratio.detach() * share).sum(), share.sum()),
        }
        return Loss(squares.sum() / (2.0 * self.beta), counted.sum(), metrics)


def is_counted(by_group: groups.Groups) -> Tensor:
    """Marks the groups with two episodes or more, bool [G]."""
    return groups.total(by_group.share, by_group) > 1.5
