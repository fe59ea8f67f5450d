"""Policy losses on preference pairs. Axes: B sequences, T decisions, P pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Objective, View
from assay.ops import groups


@dataclass(frozen=True)
class PreferencePair(Objective):
    """-log sigmoid(beta * (h(chosen) - h(rejected))), h(y) = log pi(y) - log pi_ref(y): DPO (arXiv:2305.18290).

    Reads `chosen` [B]: +1, -1, or 0 for rows in no pair; a pair is a group with one +1 and one -1 episode.
    Degenerate: no pair gives sum 0 and count 0.
    """

    beta: float = 0.1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.REFERENCE})
    together: ClassVar[str | None] = "group"
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "preferences are in the column `chosen`, not in `advantage`"}
    reads: ClassVar[Mapping[str, str]] = {"chosen": "B"}

    def count(self, batch: Experience) -> Tensor:
        return has_pair(batch, groups.row_groups(batch)).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        chosen = batch.column("chosen").to(batch.reward.dtype)
        log_ratio = ((view.scored.logp - batch.column("logp_ref").detach()) * batch.mask).sum(1)
        pairs = groups.row_groups(batch)
        margin = self.beta * groups.total(log_ratio * chosen, pairs)
        is_pair = has_pair(batch, pairs)
        loss = torch.where(is_pair, -functional.logsigmoid(margin), 0.0)
        count = is_pair.sum()
        correct = ((margin > 0) & is_pair).sum()
        metrics = {"pair_accuracy": (correct, count), "margin": ((margin.detach() * is_pair).sum(), count)}
        return Loss(loss.sum(), count, metrics)


def has_pair(batch: Experience, by_group: groups.Groups) -> Tensor:
    """Marks the groups in which a row was chosen, bool [G]."""
    return groups.total((batch.column("chosen") > 0).to(batch.reward.dtype), by_group) > 0
