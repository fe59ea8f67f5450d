"""A combination lock: only one action of several goes on at each step, and only the last step pays well.

Axes: N instances, D = a power of two numbers seen.

A state is a step h < horizon and one of three latent states: two good ones and a bad one that is never left. In a good
state one action, drawn for each (h, state), leads to either good state of the next step; at the last step it pays 1.
Any other action leads to the bad state, and pays 0.1 by a coin: leaving is rewarded at once. Uniform actions are paid
at the end once in actions^horizon episodes. What is seen are zeros and ones of latent state and step, mixed by a
Hadamard matrix, plus normal noise (Misra et al. 2020, arXiv:1911.05815; Zhou et al. 2024, arXiv:2311.08384).

With `hidden` k > 0, a bad state looks like one of the good ones, by a coin, at step k. The best policy loses nothing by
that, since it meets no bad state. But the value of what is seen there is the same whatever led to it: one step before,
a target that bootstraps from it prefers to leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.ops import random
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

BAD, LATENTS = 2, 3
LEFT, PAID = 0.1, 1.0
NOISE = 0.1
"""Deviation of the noise of each number seen."""


def hadamard(size: int) -> np.ndarray:
    """Returns the matrix of a size that is a power of two: ones and minus ones, rows at right angles."""
    found = np.ones((1, 1))
    while len(found) < size:
        found = np.block([[found, found], [found, -found]])
    return found


@dataclass(frozen=True)
class Lock:
    """Rows of a state: the step, the latent state, and a uniform number for what is seen."""

    horizon: int
    actions: int
    hidden: int
    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = True

    @property
    def limit(self) -> int:
        """Returns the steps of the lock, at the last of which an episode ends."""
        return self.horizon

    @cached_property
    def code(self) -> np.ndarray:
        """Returns the action that goes on, [horizon + 1, 3]; of the bad state and of the end it has no meaning."""
        place = np.arange((self.horizon + 1) * LATENTS).reshape(-1, LATENTS)
        return (random.uniform(Draw(0, (51,)), place) * self.actions).astype(np.int64)

    @cached_property
    def mixing(self) -> np.ndarray:
        """Returns the Hadamard matrix, large enough for the latent states and the steps with the end."""
        return hadamard(1 << (LATENTS + self.horizon).bit_length())

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Starts in either good state."""
        return np.stack([0.0 * uniform[0], np.floor(2.0 * uniform[0]), uniform[1]])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step; digits of the uniform number are the next good state, the coin, and what is seen."""
        assert uniform is not None
        step, latent = state[:2].astype(np.int64)
        here, is_good = np.minimum(step, self.horizon), latent != BAD
        opened = is_good & (action.reshape(-1) == self.code[here, latent])
        (branch, rest), last = np.divmod(2.0 * uniform, 1.0), here == self.horizon - 1
        heads, rest = np.divmod(2.0 * rest, 1.0)
        reward = PAID * (opened & last) + LEFT * (is_good & ~opened & (heads == 1.0))
        moved = np.stack([here + 1.0, np.where(opened, branch, BAD), rest])
        return moved, reward.astype(np.float32), last

    def shown(self, state: np.ndarray) -> np.ndarray:
        """Returns the latent state that is seen: where bad ones are hidden, a good one by a coin."""
        hides = (self.hidden > 0) & (state[0] == self.hidden) & (state[1] == BAD)
        seen: np.ndarray = np.where(hides, state[2] < 0.5, state[1]).astype(np.int64)
        return seen

    def observe(self, state: np.ndarray) -> Context:
        """Returns [N, D], float32."""
        size, step = len(self.mixing), np.minimum(state[0], self.horizon).astype(np.int64)
        clean = self.mixing[self.shown(state)] + self.mixing[LATENTS + step]
        word = (state[2] * 2.0**52).astype(np.int64)[:, None]
        noise = torch.special.ndtri(torch.from_numpy(random.uniform(Draw(0, (52,)), word, np.arange(size))))
        return {"observation": (torch.from_numpy(clean) + NOISE * noise).float()}

    def best(self, context: Context) -> Tensor:
        """Returns the action that goes on, read from what is seen; any where that is a bad state."""
        clean = context["observation"].double() @ torch.from_numpy(self.mixing)
        step = clean[..., LATENTS : LATENTS + self.horizon + 1].argmax(-1)
        return torch.from_numpy(self.code)[step, clean[..., :LATENTS].argmax(-1)]


def combination_lock(horizon: int = 10, actions: int = 5, hidden: int = 0) -> SteppedTask:
    """Returns the lock; the return of its best policy is 1."""
    for name, value, least in (("horizon", horizon, 1), ("actions", actions, 2), ("hidden", hidden, 0)):
        if value < least:
            raise AssayError(f"combination-lock: {name}={value} is below {least}. Use {name}={least} or more")
    dynamics = Lock(horizon, actions, hidden)
    bounds = (-3.0,) * len(dynamics.mixing), (3.0,) * len(dynamics.mixing)
    spec = Spec(Box(*bounds), Discrete(actions), horizon)
    name = f"combination-lock-{horizon}x{actions}" + (f"-hidden-{hidden}" if hidden else "")
    return SteppedTask(name, spec, partial(ArraySimulation, dynamics), dynamics.best, dynamics)


LEVELS = {"combination-lock": combination_lock}
