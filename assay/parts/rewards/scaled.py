"""Rescaled rewards. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import placed


@dataclass(frozen=True)
class ScaledReward(Reward):
    """reward <- scale * reward: for critics that start in the units of an offline dataset, or need values of order
    one.

    The task's own score does not change.
    """

    scale: float = 0.1

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with scaled rewards."""
        return replace(experience, reward=self.scale * experience.reward)


@dataclass(frozen=True)
class Floored(Reward):
    """reward = max(total of `reward`, floor), on the last decision: what is below the floor is not punished further."""

    reward: Reward = Verifier()
    floor: float = 0.0

    def init(self, scene: Scene) -> State:
        """Returns the state of the reward inside."""
        return {"inside": self.reward.init(scene)}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with floored totals."""
        rewarded = self.reward(experience, scene, state["inside"])
        return placed(rewarded, (rewarded.reward * rewarded.mask).sum(1).clamp(min=self.floor))
