"""Policy loss on the rewards of pairs sampled by any policy. Axes: B sequences, T decisions, G groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Objective, View
from assay.ops import groups


@dataclass(frozen=True)
class ContrastivePairs(Objective):
    """Mean over all pairs of a group of (d_i - d_j)^2 / (4 beta),  d = R - beta (log pi(y) - log pi_ref(y)): CoPG
    (arXiv:2406.19185).

    Computed as the group's variance of d (n - 1) over 2 beta, which is equal. Its gradient is the mean of -(d_i -
    mean of the others' d) grad log pi(y_i): on-policy, that of R - beta KL(pi || pi_ref). Its minimum is pi_ref exp(R
    / beta) / Z for every behaviour policy with full support. Reads `reward`, not credit. Degenerate: a group of one
    has no pair and is not counted.
    """

    beta: float = 0.1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.REFERENCE})
    together: ClassVar[str | None] = "group"
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "compares rewards of a pair; the column `advantage` is not read"}

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of groups with a pair."""
        return has_pair(groups.row_groups(batch)).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns half the variance within each group, over beta."""
        row = ((view.scored.logp - batch.column("logp_ref").detach()) * batch.mask).sum(1)
        log_ratio = groups.over_episode(row, batch)
        by_group = groups.row_groups(batch)
        share = by_group.share.to(row.dtype)
        regularised = groups.outcome(batch).detach() - self.beta * log_ratio
        apart = (regularised - groups.mean(regularised, by_group)).square() * share
        others = groups.total(share, by_group) - 1
        pairs = has_pair(by_group)
        variance = torch.where(pairs, groups.total(apart, by_group) / others.clamp(min=1), 0.0)
        metrics = {
            "regularised_spread": (variance.detach().sqrt().sum(), pairs.sum()),
            "log_ratio": ((log_ratio.detach() * share).sum(), share.sum()),
        }
        return Loss(variance.sum() / (2.0 * self.beta), pairs.sum(), metrics)


def has_pair(by_group: groups.Groups) -> Tensor:
    """Marks the groups with two episodes or more, bool [G]."""
    return groups.total(by_group.share, by_group) > 1.5
