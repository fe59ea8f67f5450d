"""Costs before credit: an episode that has spent its budget is over. Axes: B sequences, T decisions, K costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, State
from assay.core.slots import Prepare, Scene


@dataclass(frozen=True)
class EndAtCost(Prepare):
    """The decision with which a row's costs first exceed `limit` is terminal, and those after it are left out.

    The early-terminated decision process (arXiv:2107.04200): what follows is worth 0, so a policy that spends its
    budget gives up the rest. Stands before the credit; rows are whole episodes. Where rewards are negative, ending is
    no punishment: give what ends a `penalty`. No costs: nothing changes.
    """

    limit: float = 1.0
    penalty: float = 0.0
    channel: int = 0
    needs: ClassVar[frozenset[Need]] = frozenset()

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Cuts the rows."""
        if experience.cost is None:
            raise AssayError("EndAtCost needs costs, and the task gives none; choose a task with costs or drop it")
        spent = (experience.cost[..., self.channel] * experience.weight).cumsum(1)
        over = (spent > self.limit) & experience.mask
        first = over & (over.long().cumsum(1) == 1)
        later = over & ~first
        keep = (~later).to(experience.reward.dtype)
        return replace(
            experience,
            mask=experience.mask & ~later,
            reward=experience.reward * keep - self.penalty * first,
            logp=experience.logp * keep,
            cost=experience.cost * keep.unsqueeze(-1),
            terminal=(experience.terminal & ~later) | first,
            truncated=experience.truncated & ~later & ~first,
        )
