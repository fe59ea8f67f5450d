"""Cost budgets before credit: an episode ends when its budget is spent. Axes: B sequences, T decisions, K costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Prepare, Scene


@dataclass(frozen=True)
class EndAtCost(Prepare):
    """Makes the decision at which a row's costs first exceed `limit` terminal, and masks the decisions after it.

    The early-terminated MDP (arXiv:2107.04200): what follows is worth 0, so a policy that spends its budget loses the
    remaining rewards. Place it before the credit; assumes that rows are whole episodes. If rewards are negative,
    ending early is not a punishment: set a `penalty`. Degenerate: a limit that no row exceeds changes nothing.
    """

    limit: float = 1.0
    penalty: float = 0.0
    channel: int = 0

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        if experience.cost is None:
            raise AssayError("EndAtCost needs costs, and the task gives none. Use a task with costs or drop EndAtCost")
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
