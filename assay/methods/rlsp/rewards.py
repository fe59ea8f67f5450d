"""A reward for length, whether an answer is right or not. Axes: B sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.slots.tasks import most_decisions
from assay.parts.rewards.function import on_last_decision


@dataclass(frozen=True)
class LengthEffort(Reward):
    """reward = -share * limit / n, n the tokens of the answer and the limit the task's: short answers cost.

    The released runs have 1,000 / n at 4,096 tokens (arXiv:2502.06773). Degenerate: share 0 is no reward.
    """

    share: float = 1000 / 4096
    writes: ClassVar[tuple[str, ...]] = ("score",)

    def __post_init__(self) -> None:
        if self.share < 0:
            raise AssayError(
                f"LengthEffort.share is {self.share}; a negative one pays for short answers. Use 0 or more"
            )

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the reward on each last decision."""
        limit = 0 if scene.task is None else most_decisions(scene.task)
        length_B = experience.mask.sum(1).clamp(min=1)
        return on_last_decision(experience, -self.share * limit / length_B.to(experience.reward.dtype))
