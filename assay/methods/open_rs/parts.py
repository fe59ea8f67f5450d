"""Rewards that depend on how long a completion is. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import Rescored


@dataclass(frozen=True)
class CosineLength(Rescored):
    """Scales an outcome by length: reward = long + (short - long) * (1 + cos(pi * n / max_length)) / 2.

    n counts the row's decisions, at most max_length (unclamped, the cosine would pay twice that length like none).
    (short, long) is `right` if the total of `reward` is above 1/2 and the row was not cut, else `wrong`; a cut row has
    no answer and n = max_length. Open-RS (arXiv:2503.16219). Degenerate: short = long is the plain outcome.
    """

    reward: Reward = Verifier()
    max_length: int = 3584
    right: tuple[float, float] = (1.0, 0.5)
    wrong: tuple[float, float] = (0.0, -0.5)

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise AssayError(f"CosineLength.max_length is {self.max_length}; give at least 1")

    def worth(self, is_right_B: Tensor, length_B: Tensor) -> Tensor:
        """Returns the reward of rows of these lengths, [B]."""
        share = (1.0 + torch.cos(pi * (length_B / self.max_length).clamp(max=1.0))) / 2.0
        short, long = (torch.where(is_right_B, *pair) for pair in zip(self.right, self.wrong, strict=True))
        return long + (short - long) * share

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        """Returns the scaled outcomes."""
        is_cut = (rewarded.truncated & rewarded.mask).any(1)
        length = torch.where(is_cut, self.max_length, rewarded.mask.sum(1)).to(rewarded.reward.dtype)
        return self.worth((total_B > 0.5) & ~is_cut, length)
