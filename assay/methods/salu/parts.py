"""The policy's own confidence. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.parts.rewards.combine import placed
from assay.parts.rewards.likelihood import geometric_mean


@dataclass(frozen=True)
class Confidence(Reward):
    """reward = exp(mean over decisions of log pi(a_t)): the geometric-mean probability of what was written, in [0, 1].

    Taken from the log-probabilities recorded when acting, so that it stays the same while the policy is updated, and
    carries no gradient. As a factor of a `Product` it scales another reward. Degenerate: no decision gives no reward.
    """

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with each row's confidence on its last decision."""
        return placed(experience, geometric_mean(experience.logp, experience.mask))
