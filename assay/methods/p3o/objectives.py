"""The loss of pairs of answers. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Objective, View
from assay.ops import groups
from assay.parts.objectives.ratio import ProductRatio, of_rows
from assay.parts.objectives.trust import Clip, bounded_ratio


@dataclass(frozen=True)
class PairGradient(Objective):
    """Minus half the clipped gain of both answers of a pair, as a mean over answers.

    `joint` clips log pi(y1) / pi(y2) around its old value instead of each ratio. A pair is a group of two
    answers; other groups are left out. Degenerate: equal rewards have no gradient.
    """

    clip: float = 0.2
    joint: bool = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    together: ClassVar[str | None] = "group"
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "compares rewards of a pair; the column `advantage` is not read"}

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of answers in a pair."""
        return (partner_of(batch) != torch.arange(len(batch), device=batch.mask.device)).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the sum over answers."""
        moved, partner = of_rows(ProductRatio()(view.scored.logp, batch), batch), partner_of(batch)
        outcome, other = groups.outcome(batch), moved[partner]
        ahead = (outcome - outcome[partner]).detach()
        if self.joint:
            both, odds = ahead * bounded_ratio((moved + other).detach()), moved - other
            loss = -torch.minimum(both * odds, both * odds.clamp(-self.clip, self.clip)) / 2
        else:
            loss, _ = Clip(self.clip, self.clip)(moved, ahead * bounded_ratio(other.detach()), moved)
        return Loss(loss.sum() / 2, self.count(batch), {})


def partner_of(batch: Experience) -> Tensor:
    """Returns the row of the other answer in groups of two answers; rows of other groups are their own."""
    by_group, there = groups.row_groups(batch), batch.mask.any(1)
    row = torch.arange(len(batch), device=batch.mask.device)
    of_both, num = (groups.total(one * there, by_group)[by_group.index] for one in (row, torch.ones_like(row)))
    return torch.where(there & (num == 2), of_both - row, row)
