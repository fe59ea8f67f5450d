"""Corrections of rewards from a verifier that errs. Axes: B sequences."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import placed
from assay.parts.rewards.labels import check_labels, labels_of
from assay.parts.rewards.noisy import ByLabelRates, Rates, uniform_of

SMALLEST = 1e-6
TINY = 1e-5


def accepted_by(rewarded: Experience) -> torch.Tensor:
    """Bool [B]: whether the verifier accepted the row."""
    return (rewarded.reward * rewarded.mask).sum(1) > 0.5


@dataclass(frozen=True)
class Backward(Reward):
    """reward = (accepted - false_positive) / (1 - false_positive - false_negative): in expectation the true 0 or 1.

    `rates` are those of the prompt's `label`. arXiv:2510.00915, Algorithm 1. Acts only if no group deviation divides
    afterwards: an affine map of a 0/1 reward is lost there. Degenerate: rates of 0 leave the reward as it is.
    """

    rates: ByLabelRates = field(default_factory=lambda: {"": Rates(0.1, 0.2)})
    label: str = ""
    reward: Reward = Verifier()

    def init(self, scene: Scene) -> State:
        """Returns the state of the reward inside; refuses prompts without the label."""
        check_labels(scene, self.label, self.rates)
        return {"inside": self.reward.init(scene)}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with corrected outcomes."""
        rewarded = self.reward(experience, scene, state["inside"])
        rates = [self.rates[label] for label in labels_of(rewarded, scene, self.label, self.rates)]
        lowest, kept = (
            torch.tensor(column, dtype=rewarded.reward.dtype, device=rewarded.mask.device)
            for column in ([one.false_positive for one in rates], [max(one.kept, SMALLEST) for one in rates])
        )
        return placed(rewarded, (accepted_by(rewarded).to(lowest.dtype) - lowest) / kept)


@dataclass(frozen=True)
class Forward(Reward):
    """reward = (accepted - (1 - false_negative)) / scale: the rate if accepted, the rate - 1 if rejected.

    In expectation 0 for right answers and -(1 - false_positive - false_negative) for wrong ones. Goes with no baseline.
    arXiv:2510.00915, Algorithm 2. The rate is estimated from appeals: each rejected answer is checked again by `judge`
    with probability `share`; with F = overturned / share false negatives among A accepted answers, the rate of a step
    is (F + 1e-5) / (F + A + 2e-5), and the mean over steps is used. `share` 0 keeps `false_negative`. Degenerate: a
    step without rows leaves the estimate as it is.
    """

    false_negative: float = 0.2
    scale: float = 1.0
    share: float = 0.0
    judge: Reward = Verifier()
    reward: Reward = Verifier()

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0 or not 0.0 <= self.false_negative < 1.0 or self.scale <= 0.0:
            raise AssayError(f"{self}: share must be 0 to 1, false_negative 0 to below 1, scale above 0")

    @property
    def stochastic(self) -> bool:
        """Whether answers are drawn for appeals."""
        return self.share > 0.0

    def init(self, scene: Scene) -> State:
        """Returns the states inside, and the sum and number of the steps' rates."""
        return {"inside": self.reward.init(scene), "judge": self.judge.init(scene), "sum": 0.0, "steps": 0}

    def rate_of(self, overturned: int, accepted: int) -> float:
        """The estimate of one step from its appeals and its accepted answers."""
        missed = overturned / self.share
        return (missed + TINY) / (missed + accepted + 2.0 * TINY)

    def rate(self, state: State) -> float:
        """The false-negative rate now: the mean over steps with appeals, before the first one `false_negative`."""
        return float(state["sum"]) / state["steps"] if state["steps"] else self.false_negative

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with signed weights; counts the appeals of this step first."""
        rewarded = self.reward(experience, scene, state["inside"])
        accepted = accepted_by(rewarded)
        there = rewarded.mask.any(1)
        if self.share and bool(there.any()):
            asked = there & ~accepted & (uniform_of(rewarded, scene.given(draw=scene.draw.at(1))) < self.share)
            again = rewarded.rows(asked)  # only these are judged: a better verifier is a dear one
            overturned = int(accepted_by(self.judge(again, scene, state["judge"])).sum()) if len(again) else 0
            state["sum"] += self.rate_of(overturned, int((accepted & there).sum()))
            state["steps"] += 1
            scene.log("appeals", float(asked.sum()))
        scene.log("false_negative_rate", self.rate(state))
        return placed(rewarded, (accepted.to(rewarded.reward.dtype) - (1.0 - self.rate(state))) / self.scale)
