"""Pendulum: swing up and hold a pendulum with a torque too weak to lift it at once.

As Gymnasium's Pendulum-v1: g = 10, m = l = 1, steps of 0.05 s, truncated after 200 decisions, never terminal.

    reward  = -(theta^2 + 0.1 theta'^2 + 0.001 u^2), theta in [-pi, pi), 0 upright
    theta'  <- clip(theta' + (15 sin theta + 3 u) 0.05, -8, 8);  theta <- theta + 0.05 theta'

Axes: N instances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.arrays import Array, as_float32, as_rows, namespace
from assay.tasks.control.stepping import ArraySimulation, SteppedTask
from assay.tasks.control.tensor_stepping import TensorSimulation

MAX_SPIN = 8.0
MAX_TORQUE = 2.0
SECONDS = 0.05
HORIZON = 200


@dataclass(frozen=True)
class Pendulum:
    """Rows of a state: angle (not wrapped), angular velocity."""

    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: Array) -> Array:
        """Draws any angle, and an angular velocity between -1 and 1."""
        drawn = 2.0 * uniform - 1.0
        drawn[0] *= math.pi
        return drawn

    def step(self, state: Array, action: Array, uniform: Array | None) -> tuple[Array, Array, Array]:
        """Takes one semi-implicit Euler step; the reward is of the state before it."""
        xp, (angle, spin) = namespace(state), state
        torque = as_float32(action.reshape(-1)).clip(-MAX_TORQUE, MAX_TORQUE)
        wrapped = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = xp.square(wrapped) + 0.1 * xp.square(spin) + 0.001 * xp.square(torque)
        moved = xp.empty_like(state)
        moved[1] = (spin + (15.0 * xp.sin(angle) + 3.0 * torque) * SECONDS).clip(-MAX_SPIN, MAX_SPIN)
        moved[0] = angle + moved[1] * SECONDS
        return moved, -as_float32(cost), xp.zeros_like(angle, dtype=bool)

    def observe(self, state: Array) -> Context:
        """Returns cosine and sine of the angle, angular velocity, float32."""
        xp = namespace(state)
        return {"observation": as_rows(xp.stack((xp.cos(state[0]), xp.sin(state[0]), state[1])))}


def swing_up(context: Context) -> Tensor:
    """Pumps energy up to that of the upright position, then holds the angle with proportional and derivative torque."""
    cosine, sine, spin = context["observation"].unbind(-1)
    angle = torch.atan2(sine, cosine)
    lacking = 15.0 - (0.5 * spin.square() + 15.0 * cosine)
    pump = MAX_TORQUE * torch.where(spin * lacking >= 0, 1.0, -1.0)
    hold = -10.0 * angle - 2.0 * spin
    return torch.where(cosine > 0.8, hold, pump).clamp(-MAX_TORQUE, MAX_TORQUE)[:, None]


def pendulum() -> SteppedTask:
    """Returns Pendulum-v1 as array operations."""
    dynamics = Pendulum()
    seen = Box((-1.0, -1.0, -MAX_SPIN), (1.0, 1.0, MAX_SPIN))
    spec = Spec(seen, Box((-MAX_TORQUE,), (MAX_TORQUE,)), HORIZON)
    return SteppedTask(
        "pendulum",
        spec,
        partial(ArraySimulation, dynamics),
        swing_up,
        dynamics,
        on_device=partial(TensorSimulation, dynamics),
    )


LEVELS = {"pendulum": pendulum}
