"""Benchmark tasks: a stepped task with a dataset of its own, and a score between two reference returns.

    score = 100 (return - low) / (high - low),   low = uniform actions, high = an expert, both in the same evaluation

Degenerate: a return of `low` is 0 and of `high` 100; returns beyond them are below 0 and above 100.

Axes: N instances, B episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience, Origin
from assay.core.spaces import Box, Context, Discrete, Space
from assay.ops import random
from assay.tasks.control.stepping import SteppedTask

Policy = Callable[[Context], Tensor]


@dataclass(frozen=True)
class Benchmark(SteppedTask):
    """A task that scores returns between two references. `logged` makes its own dataset; None if it has none."""

    low: float = 0.0
    high: float = 100.0
    logged: Callable[[Draw], Experience] | None = field(default=None, repr=False)

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds `score` [B], the normalised return of each row; steps have their rewards already."""
        total = (experience.reward * experience.mask).sum(1)
        return experience.add({"score": 100.0 * (total - self.low) / (self.high - self.low)})


def benchmark(
    task: SteppedTask, name: str, reference: tuple[float, float], logged: Callable[[Draw], Experience] | None
) -> Benchmark:
    """Returns the task under this name with its dataset, scored between the reference returns (low, high)."""
    plain: dict[str, Any] = {one.name: getattr(task, one.name) for one in fields(SteppedTask)}
    return Benchmark(**plain | {"name": name}, low=reference[0], high=reference[1], logged=logged)


@dataclass(frozen=True)
class Behaviour:
    """An actor that follows a scripted policy, with a share `noise` of uniform actions."""

    policy: Policy
    space: Space
    noise: float = 0.0

    @property
    def num_draws(self) -> int:
        """Returns the uniform numbers of a decision: one to choose, the others for the random action."""
        return 1 + (self.space.size if isinstance(self.space, Box) else 1)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0; without uniform numbers those of the policy."""
        action = self.policy(context)
        if uniform is None:
            return action, torch.zeros(len(action))
        if isinstance(self.space, Box):
            low, high = torch.tensor(self.space.low), torch.tensor(self.space.high)
            anything = low + (high - low) * uniform[:, 1:]
        else:
            assert isinstance(self.space, Discrete)
            anything = (uniform[:, 1] * self.space.n).long().clamp(max=self.space.n - 1)
        chosen = (uniform[:, 0] < self.noise).view(-1, *[1] * (action.dim() - 1))
        return torch.where(chosen, anything.to(action.dtype), action), torch.zeros(len(action))


def recorded(task: SteppedTask, actor: Behaviour, episodes: int, draw: Draw) -> Experience:
    """Returns episodes of an actor from training starts of this draw."""
    own, rows = Draw(draw.seed, (62,)), np.arange(episodes)
    starts = random.integers(own.at(1), 2**40, episodes)
    played = task.play(actor, starts, np.zeros_like(rows), own, split=0, greedy=False)
    return replace(played, source=torch.full((episodes,), int(Origin.DATASET)))


def log_of(task: SteppedTask, policy: Policy, episodes: int, noise: float) -> Callable[[Draw], Experience]:
    """Returns the maker of a dataset: this scripted policy on this task, with a share of uniform actions."""
    return partial(recorded, task, Behaviour(policy, task.spec.action, noise), episodes)
