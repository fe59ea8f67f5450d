"""Scores learned from preferences. Axes: B sequences, T decisions, P pairs.

P(chosen beats rejected) = sigmoid(score(chosen) - score(rejected))      Bradley & Terry 1952
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, View
from assay.ops import groups


@dataclass(frozen=True)
class BradleyTerry(CriticLoss):
    """-log sigmoid(score(chosen) - score(rejected)), summed over pairs; a row's score is the critic's at its last
    decision.

    Reads `chosen` [B]: +1, -1, or 0 for rows in no pair; a pair is a group with one +1 and one -1. At the minimum over
    free scores the difference is log(p / (1 - p)), where p is how often the first is chosen. Degenerate: no pair gives
    sum 0 and count 0; a row without a decision scores 0. Source: Bradley & Terry 1952; arXiv:2203.02155. Assumes that
    preferences depend on a difference of scores.
    """

    critic: str = model_name("value")
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = "group"
    reads: ClassVar[Mapping[str, str]] = {"chosen": "B"}

    def count(self, batch: Experience) -> Tensor:
        return has_pair(batch, groups.row_groups(batch)).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        score = at_last_decision(view.model(self.critic)(batch.context), batch.mask)
        pairs = groups.row_groups(batch)
        margin = groups.total(score * batch.column("chosen").to(score.dtype), pairs)
        is_pair = has_pair(batch, pairs)
        loss, count = torch.where(is_pair, -functional.logsigmoid(margin), 0.0), is_pair.sum()
        correct = ((margin > 0) & is_pair).sum()
        return Loss(loss.sum(), count, {"score_accuracy": (correct, count)})


def has_pair(batch: Experience, by_group: groups.Groups) -> Tensor:
    """Marks the groups in which a row was chosen and has a decision, bool [G]."""
    chosen = (batch.column("chosen") > 0) & batch.mask.any(1)
    return groups.total(chosen.to(batch.reward.dtype), by_group) > 0


def at_last_decision(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns the value at each row's last decision, [B]; 0 if a row has none."""
    columns = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    last = torch.where(mask_BT, columns, -1).amax(1)
    return values_BT.gather(1, last.clamp(min=0).unsqueeze(1)).squeeze(1) * (last >= 0)
