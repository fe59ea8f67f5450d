"""A pendulum that is trained in a simulator which is not quite right, and evaluated in the real system.

    real: theta'' = 15 sin theta + 3 u, the pendulum's;   simulated: theta'' = 15 * gravity * sin theta + 3 u

Held-out episodes are played in the real system, and the offline dataset was recorded there, by the scripted expert with
a share of random actions. Degenerate: with gravity 1 the simulator is right.

Axes: N instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import at_least, name_with_dials, share
from assay.core.record import Draw, Experience, Origin
from assay.core.spaces import Context
from assay.ops import random
from assay.tasks.control.arrays import Array, as_float32, namespace
from assay.tasks.control.pendulum import MAX_SPIN, MAX_TORQUE, SECONDS, Pendulum, pendulum, swing_up
from assay.tasks.control.stepping import ArraySimulation, SteppedTask


@dataclass(frozen=True)
class Simulated(Pendulum):
    """The pendulum under `gravity` times its gravity; rewards are the pendulum's."""

    gravity: float = 0.5

    def step(self, state: Array, action: Array, uniform: Array | None) -> tuple[Array, Array, Array]:
        """Takes one step, with less (or more) of the pendulum's 15 sin theta."""
        xp, (after, reward, terminal) = namespace(state), super().step(state, action, uniform)
        torque = as_float32(action.reshape(-1)).clip(-MAX_TORQUE, MAX_TORQUE)
        angle, spin = state
        moved = xp.empty_like(after)
        moved[1] = (spin + (15.0 * self.gravity * xp.sin(angle) + 3.0 * torque) * SECONDS).clip(-MAX_SPIN, MAX_SPIN)
        moved[0] = angle + moved[1] * SECONDS
        return moved, reward, terminal


@dataclass(frozen=True)
class NoisySwing:
    """Swings up, but takes a random torque with chance `noise`."""

    noise: float
    num_draws: int = 2

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0."""
        assert uniform is not None
        anything = MAX_TORQUE * (2.0 * uniform[:, 1:] - 1.0)
        return torch.where(uniform[:, :1] < self.noise, anything, swing_up(context)), torch.zeros(len(uniform))


def record_dataset(noise: float, episodes: int, draw: Draw) -> Experience:
    """Returns the dataset of a draw, of the real system."""
    own, rows = Draw(draw.seed, (48,)), np.arange(episodes)
    starts = random.integers(own.at(1), 2**40, episodes)
    played = pendulum().play(NoisySwing(noise), starts, np.zeros_like(rows), own, split=0, greedy=False)
    return replace(played, source=torch.full((episodes,), int(Origin.DATASET)))


@dataclass(frozen=True)
class GapTask(SteppedTask):
    """A task with another simulation for held-out episodes and a dataset of it."""

    logged: Callable[[Draw], Experience] | None = None


def reality_gap(gravity: float = 0.5, noise: float = 0.5, episodes: int = 10) -> GapTask:
    """Returns the task with its dataset."""
    share("reality-gap", noise=noise)
    at_least("reality-gap", 0.0, gravity=gravity)
    at_least("reality-gap", 1, episodes=episodes)
    name = name_with_dials("reality-gap", gravity=(gravity, 0.5), noise=(noise, 0.5), episodes=(episodes, 10))
    real, dynamics = pendulum(), Simulated(gravity)
    return GapTask(
        name, real.spec, partial(ArraySimulation, dynamics), swing_up, dynamics, held_out=real.make,
        logged=partial(record_dataset, noise, episodes),
    )
