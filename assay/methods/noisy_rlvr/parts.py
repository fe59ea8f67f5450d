"""How often a verifier errs: the rate of its false negatives, estimated from appeals. Axes: B sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier
from assay.ops import groups
from assay.parts.rewards.combine import placed
from assay.parts.rewards.function import uniform_of

TINY = 1e-5


@dataclass(frozen=True)
class Appeals(Reward):
    """reward <- accepted - (1 - f1): f1 if the rewards so far accept a row (above 1/2), f1 - 1 if they reject it.

    f1 is the mean over steps, so far, of `rate_of`: each rejected answer is checked again by `judge`, a better and
    dearer verifier, with probability `share`. arXiv:2510.00915, Algorithm 2. Degenerate: no rows, no step counted.
    """

    share: float = 0.1
    judge: Reward = Verifier()
    stochastic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise AssayError(f"Appeals.share is {self.share}; give a number above 0, at most 1")

    def init(self, scene: Scene) -> State:
        """Returns the judge's state, and the sum and number of the steps' rates."""
        return {"judge": self.judge.init(scene), "sum": 0.0, "steps": 0}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with signed weights; counts the appeals of this step first."""
        accepted, there = groups.outcome(experience) > 0.5, experience.mask.any(1)
        if bool(there.any()):
            again = experience.rows(there & ~accepted & (uniform_of(experience, scene) < self.share))
            judged = self.judge(again, scene, state["judge"]) if len(again) else again
            overturned = int((groups.outcome(judged) > 0.5).sum())
            state["sum"] += rate_of(overturned, int((accepted & there).sum()), self.share)
            state["steps"] += 1
            scene.log("appeals", float(len(again)))
        rate = state["sum"] / max(1, state["steps"])
        scene.log("false_negative_rate", rate)
        return placed(experience, accepted.to(experience.reward.dtype) - (1.0 - rate))


def rate_of(overturned: int, accepted: int, share: float) -> float:
    """P(rejected | right) of one step: (F + 1e-5) / (F + A + 2e-5), A accepted and F = overturned / share missed."""
    missed = overturned / share
    return (missed + TINY) / (missed + accepted + 2.0 * TINY)
