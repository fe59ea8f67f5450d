"""Rewards for effort, whether an answer is right or not. Axes: B sequences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.slots.tasks import most_decisions
from assay.parts.rewards.function import on_last_decision
from assay.parts.rewards.text import OfText, by_text


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


@dataclass(frozen=True)
class SearchEffort(OfText):
    """reward = 1 - gamma^n, n the times that the regular expression `unit` is found: each step of search pays less.

    The form of the paper's text. Degenerate: an answer without a step gets 0.
    """

    unit: str
    gamma: float = 0.5
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"unit": "1"},)

    def __post_init__(self) -> None:
        if not 0.0 < self.gamma < 1.0:
            raise AssayError(f"SearchEffort.gamma is {self.gamma}; give a number between 0 and 1")

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the reward on each last decision."""
        return by_text(experience, scene, lambda said: 1.0 - self.gamma ** len(re.findall(self.unit, said)))
