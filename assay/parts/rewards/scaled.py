"""Rewards in other units. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene


@dataclass(frozen=True)
class ScaledReward(Reward):
    """reward <- scale * reward: for critics that begin in units of a log, or near values of order one.

    The task's own score stays as it is.
    """

    scale: float = 0.1

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """The experience in other units."""
        return replace(experience, reward=self.scale * experience.reward)
