"""A rule that finds refusals, and helpfulness that is floored and noisy. Axes: B sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import Rescored
from assay.parts.rewards.function import uniform_of
from assay.parts.rewards.text import OfText, by_text


@dataclass(frozen=True)
class Says(OfText):
    """1 if the completion contains one of `phrases`, whatever their capitals, else 0: a refusal, an abstention.

    Only what stands after the last `after` is read, so that reasoning before it may use the words; a completion without
    it is read from its beginning. A phrase inside a helpful answer counts too.
    """

    phrases: tuple[str, ...]
    after: str = ""
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"phrases": ("1",)},)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with 0 or 1 on each last decision."""
        phrases = [phrase.casefold() for phrase in self.phrases]

        def holds(said: str) -> bool:
            answer = (said.rpartition(self.after)[2] if self.after else said).casefold()
            return any(phrase in answer for phrase in phrases)

        return by_text(experience, scene, holds)


@dataclass(frozen=True)
class Floored(Rescored):
    """reward = max(total of `reward`, floor), on the last decision: what is below the floor is not punished further."""

    reward: Reward = Verifier()
    floor: float = 0.0

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        """Returns the floored totals."""
        return total_B.clamp(min=self.floor)


@dataclass(frozen=True)
class Jittered(Rescored):
    """reward = scale * (total of `reward` + normal noise of `deviation`): a learned score with its own units.

    Draws belong to (step, start, sample). Degenerate: deviation 0 and scale 1 give the total.
    """

    reward: Reward = Verifier()
    scale: float = 1.0
    deviation: float = 0.1
    stochastic: ClassVar[bool] = True

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        """Returns the noisy totals."""
        noise = torch.special.ndtri(uniform_of(rewarded, scene)).to(total_B.dtype)
        return self.scale * (total_B + self.deviation * noise)
