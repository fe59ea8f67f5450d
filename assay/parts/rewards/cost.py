"""Costs that need no support from the task. Axes: B sequences, T decisions, K costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene


@dataclass(frozen=True)
class LengthCost(Reward):
    """Gives every decision of a row after its first `limit` a cost of 1, as a new channel after the task's own.

    The cost of a row is then its excess length. Rewards do not change.
    """

    limit: int = 64

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the channel."""
        late = (experience.mask.cumsum(1) > self.limit) & experience.mask
        cost = late.to(experience.reward.dtype).unsqueeze(-1)
        return replace(experience, cost=cost if experience.cost is None else torch.cat([experience.cost, cost], -1))
