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

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

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

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws any angle, and an angular velocity between -1 and 1."""
        return np.array([[math.pi], [1.0]]) * (2.0 * uniform - 1.0)

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one semi-implicit Euler step; the reward is of the state before it."""
        angle, spin = state
        torque = action.reshape(-1).astype(np.float32).clip(-MAX_TORQUE, MAX_TORQUE)
        wrapped = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = np.square(wrapped) + 0.1 * np.square(spin) + 0.001 * np.square(torque)
        moved = np.empty_like(state)
        moved[1] = (spin + (15.0 * np.sin(angle) + 3.0 * torque) * SECONDS).clip(-MAX_SPIN, MAX_SPIN)
        moved[0] = angle + moved[1] * SECONDS
        return moved, -cost.astype(np.float32), np.zeros(len(angle), bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns cosine and sine of the angle, angular velocity, float32."""
        seen = np.empty((state.shape[1], 3), np.float32)
        seen[:, 0], seen[:, 1], seen[:, 2] = np.cos(state[0]), np.sin(state[0]), state[1]
        return {"observation": torch.from_numpy(seen)}


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
    return SteppedTask("pendulum", spec, partial(ArraySimulation, dynamics), swing_up, dynamics)


LEVELS = {"pendulum": pendulum}
