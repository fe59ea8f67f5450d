"""Rewards that depend on how long a completion is. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Reward, Scene
from assay.core.slots.text_tasks import most_decisions
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import Rescored


def cosine(share_B: Tensor) -> Tensor:
    """Returns (1 + cos(pi u)) / 2, u the share of the limit, at most 1: unclamped, it would pay u = 2 like u = 0."""
    return (1.0 + torch.cos(pi * share_B.clamp(max=1.0))) / 2.0


def inverse(share_B: Tensor) -> Tensor:
    """Returns 1 / u, u the share of the limit: every further token changes less."""
    return 1.0 / share_B


@dataclass(frozen=True)
class ByLength(Rescored):
    """Scales an outcome by length: reward = long + (short - long) * curve(n / limit).

    n counts the row's decisions, at least 1; the limit is the task's if it is None. (short, long) is `right` if the
    total of `reward` is above 1/2 and the row was not cut, else `wrong`; a cut row has no answer and n = limit. Open-RS
    (arXiv:2503.16219) has the cosine, RLSP (arXiv:2502.06773) the inverse. Degenerate: short = long is the plain
    outcome. Assumes that the limit is the longest that an answer can be.
    """

    right: tuple[float, float] = (1.0, 0.5)
    wrong: tuple[float, float] = (0.0, -0.5)
    limit: int | None = None
    curve: Callable[[Tensor], Tensor] = cosine
    reward: Reward = Verifier()
    reads_shares: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"limit": 8}, {"limit": 8, "curve": inverse})

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise AssayError(f"ByLength.limit is {self.limit}; give at least 1, or None for the task's")

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        limit = most_decisions(scene.task) if self.limit is None else self.limit
        is_cut = (rewarded.truncated & rewarded.mask).any(1)
        length = torch.where(is_cut, limit, rewarded.mask.sum(1).clamp(min=1)).to(rewarded.reward.dtype)
        is_right = (total_B > 0.5) & ~is_cut
        short, long = (torch.where(is_right, *pair) for pair in zip(self.right, self.wrong, strict=True))
        return long + (short - long) * self.curve(length / limit)
