"""Rescaled rewards. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene


@dataclass(frozen=True)
class ScaledReward(Reward):
    """reward <- scale * reward: for critics that start in the units of an offline dataset, or need values of order
    one.

    The task's own score does not change. Degenerate: scale 1 changes nothing; scale 0 removes the reward. Source: by
    definition. Assumes that no other part reads rewards in the task's units.
    """

    scale: float = 0.1

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return replace(experience, reward=self.scale * experience.reward)
