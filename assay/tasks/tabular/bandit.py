"""Bandits: one decision per episode, one state.

The reward is means[arm] + noise z; z is standard normal, the same for every arm of one (seed, episode).

Axes: B rows, T decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.spaces import Context, Discrete, Spec
from assay.tasks.control.stepping import ArraySimulation, SteppedTask


@dataclass(frozen=True)
class Bandit:
    """Arms with the given mean rewards and a common standard deviation."""

    means: tuple[float, ...]
    noise: float = 0.0
    num_start_draws: ClassVar[int] = 0
    limit: ClassVar[int] = 2  # never reached: the first decision ends the episode

    def __post_init__(self) -> None:
        if len(self.means) == 0:
            raise AssayError("Bandit: means=() has no arm. Give at least one mean")
        if self.noise < 0:
            raise AssayError(f"Bandit: noise={self.noise} is negative. Use a standard deviation of 0 or more")

    @cached_property
    def _means(self) -> np.ndarray:
        return np.asarray(self.means, np.float64)

    @property
    def has_chance(self) -> bool:
        """Returns whether rewards are noisy."""
        return self.noise > 0

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Returns the one state."""
        return np.zeros(uniform.shape[1], np.int64)

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns rewards the arm and ends the episode."""
        reward = self._means[action]
        if uniform is not None:
            reward = reward + self.noise * torch.special.ndtri(torch.from_numpy(uniform)).numpy()
        return state.copy(), reward.astype(np.float32), np.ones(len(state), bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns state 0."""
        return {"state": torch.from_numpy(state.copy())}

    def best(self, context: Context) -> Tensor:
        """Returns the arm with the largest mean."""
        return torch.full_like(context["state"], int(np.argmax(self.means)))


def bandit(means: tuple[float, ...] = (0.0, 0.5, 1.0), noise: float = 0.0) -> SteppedTask:
    """Returns a bandit with these arms."""
    dynamics = Bandit(tuple(means), noise)
    name = "-".join(["bandit", *(f"{mean:g}" for mean in means), *([f"noise{noise:g}"] if noise else [])])
    spec = Spec(Discrete(1), Discrete(len(means)), 1)
    return SteppedTask(name, spec, partial(ArraySimulation, dynamics), dynamics.best, dynamics)


LEVELS = {"bandit": bandit}
