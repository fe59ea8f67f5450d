"""Rewards in other units. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.core.record import Experience
from assay.core.slots import Reward, Task


@dataclass(frozen=True)
class ScaledReward(Reward):
    """reward <- scale * reward: for critics that begin in units of a log, or near values of order one.

    The task's own score stays as it is.
    """

    scale: float = 0.1

    def __call__(self, experience: Experience, task: Task, split: int) -> Experience:
        """The experience in other units."""
        return replace(experience, reward=self.scale * experience.reward)
