"""A verifier that errs, and corrections of its rewards. Axes: B sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Choice, Reward, Scene
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import Rescored, placed
from assay.parts.rewards.function import uniform_of
from assay.parts.rewards.labels import check_labels, labels_of, log_by_label

SMALLEST = 1e-6
TINY = 1e-5


@dataclass(frozen=True)
class Rates(Choice):
    """How often a verifier errs: P(accepted | wrong) and P(rejected | right), together below 1."""

    false_positive: float = 0.0
    false_negative: float = 0.0

    def __post_init__(self) -> None:
        low, total = min(self.false_positive, self.false_negative), self.false_positive + self.false_negative
        if low < 0.0 or total >= 1.0:
            raise AssayError(f"{self}: rates must be at least 0 and add up to less than 1")

    @property
    def kept(self) -> float:
        """1 - false_positive - false_negative: what is left of the difference between right and wrong."""
        return 1.0 - self.false_positive - self.false_negative


ByLabelRates = Mapping[str, Rates]
"""The rates of each label; the empty label is every prompt's where a part's `label` is empty."""


@dataclass(frozen=True)
class NoisyChannel(Rescored):
    """Turns a right answer's 1 into 0 with probability false_negative, a wrong one's 0 into 1 with false_positive.

    Right means that the total of `reward` is above 1/2. Rates depend on the fact `label` of the prompt. For testbeds:
    it knows the truth, and logs it as `clean/LABEL`. Draws belong to (step, start, sample). Degenerate: rates of 0
    change nothing.
    """

    rates: ByLabelRates = field(default_factory=lambda: {"": Rates(0.1, 0.2)})
    label: str = ""
    reward: Reward = Verifier()
    stochastic: ClassVar[bool] = True

    def init(self, scene: Scene) -> State:
        """Returns the state of the reward inside; refuses prompts without the label."""
        check_labels(scene, self.label, self.rates)
        return super().init(scene)

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        """Returns the noisy outcomes."""
        is_right, labels = total_B > 0.5, labels_of(rewarded, scene, self.label, self.rates)
        log_by_label("clean", labels, is_right.tolist(), rewarded, scene)
        errs = [self.rates[label] for label in labels]
        wrong, right = (
            torch.tensor(column, dtype=torch.float64, device=is_right.device)
            for column in ([one.false_positive for one in errs], [one.false_negative for one in errs])
        )
        return (uniform_of(rewarded, scene) < torch.where(is_right, 1.0 - right, wrong)).to(total_B.dtype)


@dataclass(frozen=True)
class Backward(Rescored):
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
        return super().init(scene)

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        """Returns the corrected outcomes."""
        rates = [self.rates[label] for label in labels_of(rewarded, scene, self.label, self.rates)]
        lowest, kept = (
            torch.tensor(column, dtype=total_B.dtype, device=total_B.device)
            for column in ([one.false_positive for one in rates], [max(one.kept, SMALLEST) for one in rates])
        )
        return ((total_B > 0.5).to(lowest.dtype) - lowest) / kept


def accepted_by(rewarded: Experience) -> Tensor:
    """Returns whether the verifier accepted each row, bool [B]."""
    return (rewarded.reward * rewarded.mask).sum(1) > 0.5


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
