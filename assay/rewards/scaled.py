"""Rewards in other units. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.slots import Task
from assay.types import Experience


@dataclass(frozen=True)
class ScaledReward:
    """reward <- scale * reward: for critics that begin in units of a log, or near values of order one.

    The task's own score stays as it is.
    """

    scale: float = 0.1

    def __call__(self, experience: Experience, task: Task, split: int) -> Experience:
        """The experience in other units."""
        return replace(experience, reward=self.scale * experience.reward)
