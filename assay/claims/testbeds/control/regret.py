"""Control tasks whose optimum is known: the score of an episode is its regret, from 0 (random) to 1 (optimal).

Axes: B episodes, T decisions.

    score = 1 - sum_t loss(s_t, a_t) / scale,   loss = V*(s_t) - Q*(s_t, a_t) >= 0,   scale = J* - J(uniform actions)

By the performance-difference lemma the sum is the regret of the policy in expectation, without the noise of
transitions and rewards: the optimal policy scores exactly 1 in every episode, uniform actions 0 in the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.tasks.control.stepping import SteppedTask


def no_losses(experience: Experience) -> Tensor:
    """Returns 0 for every decision."""
    return torch.zeros_like(experience.reward)


@dataclass(frozen=True)
class RegretTask(SteppedTask):
    """A task that scores decisions by what they lose against the optimal one. `logged` makes its own offline dataset,
    one for each draw; None if it has none.
    """

    losses: Callable[[Experience], Tensor] = no_losses
    """[B, T]; what is masked does not matter."""
    scale: float = 1.0
    logged: Callable[[Draw], Experience] | None = None
    num_held_out: int = 1_000
    sampled: bool = False
    """Whether policies are always played with their samples, never with their mode."""

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Plays one episode for each (start, sample)."""
        return super().play(actor, starts, samples, draw, split=split, greedy=greedy and not self.sampled)

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds `score` [B], the normalised regret; steps have their rewards already."""
        lost = (self.losses(experience) * experience.mask).sum(1)
        return experience.add({"score": 1.0 - lost / self.scale})


def name_with_dials(name: str, **dials: tuple[float, float]) -> str:
    """Returns the task's name with the (value, default) settings that differ from their defaults."""
    changed = ",".join(f"{dial}={value:g}" for dial, (value, default) in dials.items() if value != default)
    return f"{name}:{changed}" if changed else name


def at_least(task: str, least: float, **dials: float) -> None:
    """Raises AssayError if a setting is below what it may be."""
    for dial, value in dials.items():
        if value < least:
            raise AssayError(f"task '{task}': {dial}={value:g} is below {least:g}. Use {dial}={least:g} or more")


def share(task: str, **dials: float) -> None:
    """Raises AssayError if a setting is not between 0 and 1."""
    for dial, value in dials.items():
        if not 0 <= value <= 1:
            raise AssayError(f"task '{task}': {dial}={value:g} is not a share. Use 0 to 1")
