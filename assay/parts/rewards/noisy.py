"""Verifiers that err: a binary channel for testbeds, a noisy score. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Choice, Reward, Scene
from assay.core.verifier import Verifier
from assay.ops import random
from assay.parts.rewards.combine import placed
from assay.parts.rewards.labels import check_labels, labels_of, log_by_label


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
class NoisyChannel(Reward):
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
        return {"inside": self.reward.init(scene)}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with noisy outcomes."""
        rewarded = self.reward(experience, scene, state["inside"])
        is_right = (rewarded.reward * rewarded.mask).sum(1) > 0.5
        labels = labels_of(rewarded, scene, self.label, self.rates)
        log_by_label("clean", labels, is_right.tolist(), rewarded, scene)
        errs = [self.rates[label] for label in labels]
        wrong, right = (
            torch.tensor([getattr(one, name) for one in errs], dtype=torch.float64, device=is_right.device)
            for name in ("false_positive", "false_negative")
        )
        accepted = uniform_of(rewarded, scene) < torch.where(is_right, 1.0 - right, wrong)
        return placed(rewarded, accepted.to(rewarded.reward.dtype))


@dataclass(frozen=True)
class Jittered(Reward):
    """reward = scale * (total of `reward` + normal noise of `deviation`): a learned score with its own units.

    Draws belong to (step, start, sample). Degenerate: deviation 0 and scale 1 give the total.
    """

    reward: Reward = Verifier()
    scale: float = 1.0
    deviation: float = 0.1
    stochastic: ClassVar[bool] = True

    def init(self, scene: Scene) -> State:
        """Returns the state of the reward inside."""
        return {"inside": self.reward.init(scene)}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with noisy totals."""
        rewarded = self.reward(experience, scene, state["inside"])
        noise = torch.special.ndtri(uniform_of(rewarded, scene)).to(rewarded.reward.dtype)
        return placed(rewarded, self.scale * ((rewarded.reward * rewarded.mask).sum(1) + self.deviation * noise))


def uniform_of(experience: Experience, scene: Scene) -> Tensor:
    """A uniform number for each (start, sample) at this step, [B] float64."""
    start, sample = (experience.column(name).cpu().numpy() for name in ("start", "sample"))
    drawn = torch.from_numpy(np.asarray(random.uniform(scene.draw, start, sample)))
    return drawn.to(experience.mask.device)
