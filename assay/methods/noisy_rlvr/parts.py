"""A verifier that errs: what its verdicts are worth, and how often it errs. Axes: B sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier
from assay.ops import groups
from assay.parts.rewards.combine import placed
from assay.parts.rewards.function import uniform_of
from assay.parts.rewards.labels import ByLabel
from assay.parts.rewards.noise import Noisy

TINY = 1e-5
Rates = Mapping[str, tuple[float, float]]
"""(f0, f1) of each label; the empty label is every prompt's where no fact is the label."""


def backward(f0: float, f1: float) -> dict[str, float]:
    """What an accepted and a rejected answer get; in expectation a right one gets 1, a wrong one 0."""
    if min(f0, f1) < 0.0 or f0 + f1 >= 1.0:
        raise AssayError(f"the rates of a verifier are {f0} and {f1}. Give numbers from 0 that add up to less than 1")
    return {"right": (1.0 - f0) / (1.0 - f0 - f1), "wrong": -f0 / (1.0 - f0 - f1)}


def noisy(rates: Rates, label: str = "label") -> Reward:
    """The verifier with these errors, for testbeds: it logs the truth as `verdict/LABEL/right`."""
    return Noisy(ByLabel({kind: {"right": 1.0 - f1, "wrong": f0} for kind, (f0, f1) in rates.items()}, label=label))


@dataclass(frozen=True)
class Appeals(Reward):
    """reward <- accepted - (1 - f1): f1 if the rewards so far accept a row (above 1/2), f1 - 1 if they reject it.

    f1 = P(rejected | right) is the mean over steps, so far, of an estimate: each rejected answer is checked again by
    `judge` with probability `share`; see `rate_of`. Degenerate: a step without rows leaves the mean as it is.
    """

    share: float = 0.1
    judge: Reward = Verifier()
    stochastic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise AssayError(f"Appeals.share is {self.share}; give a number above 0 and up to 1")

    def init(self, scene: Scene) -> State:
        """Returns the judge's state, and the sum and number of the steps' rates."""
        return {"judge": self.judge.init(scene), "sum": 0.0, "steps": 0}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with signed weights; counts the appeals of this step first."""
        accepted, there = groups.outcome(experience) > 0.5, experience.mask.any(1)
        if not bool(there.any()):
            return experience
        asked = there & ~accepted & (uniform_of(experience, scene) < self.share)
        again = experience.rows(asked)  # only these are judged: a better verifier is a dear one
        judged = self.judge(again, scene, state["judge"]) if len(again) else again
        overturned = int((groups.outcome(judged) > 0.5).sum())
        state["sum"] += rate_of(overturned, int((accepted & there).sum()), self.share)
        state["steps"] += 1
        rate = state["sum"] / state["steps"]
        scene.log("appeals", float(asked.sum()))
        scene.log("false_negative_rate", rate)
        return placed(experience, accepted.to(experience.reward.dtype) - (1.0 - rate))


def rate_of(overturned: int, accepted: int, share: float) -> float:
    """P(rejected | right) of one step: (F + 1e-5) / (F + A + 2e-5), A accepted and F = overturned / share missed."""
    missed = overturned / share
    return (missed + TINY) / (missed + accepted + 2.0 * TINY)
