"""Outcomes compared within each role of a game. Axes: B rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import RowStatistic
from assay.ops import groups


def by_player(experience: Experience) -> groups.Groups:
    """Groups all rows of each player; without players all rows form one group."""
    rows = groups.row_groups(experience)
    label = torch.zeros_like(rows.index) if experience.player is None else experience.player
    return replace(groups.groups_of(label, len(experience), label.device), share=rows.share)


@dataclass(frozen=True)
class PlayerMean(RowStatistic):
    """Mean outcome of all episodes of the row's player, so that roles are not compared with each other.

    Degenerate: without players it is the batch mean.
    """

    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the baseline is a mean over all starts"}

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns one mean per player."""
        return groups.mean(outcome_B, by_player(experience))


@dataclass(frozen=True)
class PlayerDeviation(RowStatistic):
    """Standard deviation (n - 1) of the outcomes of the row's player plus `epsilon` (REINFORCE++, arXiv:2501.03262).

    Degenerate: a player with one episode, or with equal outcomes, has scale `epsilon` and advantages of 0.
    """

    epsilon: float = 1e-4
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the deviation is that of all starts"}

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the deviations, never 0."""
        return groups.deviation(outcome_B, by_player(experience)) + self.epsilon
