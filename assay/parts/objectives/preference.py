"""Policy losses on preference pairs. Axes: B sequences, T decisions, P pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Objective, View
from assay.ops import groups


class OverPairs(Protocol):
    """A term that sums over preference pairs. Reads `chosen` [B]: +1, -1, or 0 for rows in no pair; a pair is a group
    with one +1 and one -1 episode. Degenerate: no pair gives sum 0 and count 0.

    Source: arXiv:2305.18290. Assumes that rows of a group stay in one micro-batch.
    """

    together: ClassVar[str | None] = "group"
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "preferences are in the column `chosen`, not in `advantage`"}
    reads: ClassVar[Mapping[str, str]] = {"chosen": "B"}

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of pairs."""
        return has_pair(batch, groups.row_groups(batch)).sum()


@dataclass(frozen=True)
class PreferencePair(OverPairs, Objective):
    """-log sigmoid(beta * (h(chosen) - h(rejected))), h(y) = log pi(y) - log pi_ref(y): DPO (arXiv:2305.18290).

    A pair is a group with a chosen and a rejected episode (`OverPairs`). Degenerate: no pair gives sum 0 and count 0.
    Assumes that preferences follow the Bradley-Terry model of the implicit reward.
    """

    beta: float = 0.1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.REFERENCE})

    def __call__(self, batch: Experience, view: View) -> Loss:
        chosen = batch.column("chosen").to(batch.reward.dtype)
        log_ratio = ((view.scored.logp - batch.column("logp_ref").detach()) * batch.mask).sum(1)
        pairs = groups.row_groups(batch)
        margin = self.beta * groups.total(log_ratio * chosen, pairs)
        is_pair = has_pair(batch, pairs)
        return summed_over_pairs(-functional.logsigmoid(margin), margin, is_pair)


def summed_over_pairs(loss: Tensor, margin: Tensor, is_pair: Tensor) -> Loss:
    """Returns the sum of the loss [G] over the pairs and their number; as metrics the share of pairs with a margin [G]
    above 0, and the mean margin.
    """
    count, correct = is_pair.sum(), ((margin > 0) & is_pair).sum()
    metrics = {"pair_accuracy": (correct, count), "margin": ((margin.detach() * is_pair).sum(), count)}
    return Loss(torch.where(is_pair, loss, 0.0).sum(), count, metrics)


def has_pair(batch: Experience, by_group: groups.Groups) -> Tensor:
    """Marks the groups in which a row was chosen, bool [G]."""
    return groups.total((batch.column("chosen") > 0).to(batch.reward.dtype), by_group) > 0


def pair_totals(batch: Experience, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the sum of values [B] over the rows of each group's chosen and of its rejected episode, and where there
    is a pair: three [G].
    """
    by_group, chosen = groups.row_groups(batch), batch.column("chosen")
    both = [groups.total(values * (sign * chosen > 0).to(values.dtype), by_group) for sign in (1, -1)]
    return both[0], both[1], has_pair(batch, by_group)


def mean_logp(batch: Experience, logp: Tensor) -> Tensor:
    """Returns each row's share of its episode's mean log-probability, [B]: the rows of an episode add up to it. 0
    without a decision.
    """
    length = groups.over_episode(batch.mask.sum(1).to(logp.dtype), batch)
    return (logp * batch.mask).sum(1) / length.clamp(min=1)
