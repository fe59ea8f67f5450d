"""CartPole: keep a pole upright on a cart by pushing left (0) or right (1); reward 1 for every decision.

Barto, Sutton & Anderson (1983) as in Gymnasium's CartPole-v1: Euler steps of 0.02 s, the end at 12 degrees or 2.4
units, truncated after 500 decisions.

    push   = (force + m l theta'^2 sin theta) / M
    theta" = (g sin theta - push cos theta) / (l (4/3 - m cos^2 theta / M))
    x"     = push - m l theta" cos theta / M

Axes: N instances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Discrete, Spec
from assay.tasks.control.arrays import Array, as_rows, namespace
from assay.tasks.control.stepping import ArraySimulation, SteppedTask
from assay.tasks.control.tensor_stepping import TensorSimulation

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 0.1 + 1.0
HALF_LENGTH = 0.5
POLE_MOMENT = POLE_MASS * HALF_LENGTH
SECONDS = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = 12 * 2 * math.pi / 360
FORCE = 10.0
HORIZON = 500
LEANING = torch.tensor([0.1, 0.3, 1.0, 0.5])
"""Weights of the four numbers in the sum by which the scripted expert decides."""


@dataclass(frozen=True)
class CartPole:
    """Rows of a state: position, velocity, angle, angular velocity."""

    num_start_draws: ClassVar[int] = 4
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: Array) -> Array:
        """Draws all four numbers between -0.05 and 0.05."""
        return 0.1 * uniform - 0.05

    def step(self, state: Array, action: Array, uniform: Array | None) -> tuple[Array, Array, Array]:
        """Takes one Euler step."""
        xp = namespace(state)
        angle, spin = state[2], state[3]
        sine, cosine = xp.sin(angle), xp.cos(angle)
        push = (FORCE * (2 * action - 1) + POLE_MOMENT * xp.square(spin) * sine) / TOTAL_MASS
        inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * xp.square(cosine) / TOTAL_MASS)
        rate = xp.empty_like(state)
        rate[0] = state[1]
        rate[2] = spin
        rate[3] = turning = (GRAVITY * sine - cosine * push) / inertia
        rate[1] = push - POLE_MOMENT * turning * cosine / TOTAL_MASS
        rate *= SECONDS
        rate += state
        beyond = (abs(rate[0]) > MAX_POSITION) | (abs(rate[2]) > MAX_ANGLE)
        return rate, xp.ones_like(angle, dtype=xp.float32), beyond

    def observe(self, state: Array) -> Context:
        """Returns the four numbers, float32."""
        return {"observation": as_rows(state)}


def balance(context: Context) -> Tensor:
    """Pushes to the side of a weighted sum of the four numbers; reaches the limit from every start."""
    return (context["observation"] @ LEANING.to(context["observation"].device) > 0).long()


def cartpole() -> SteppedTask:
    """Returns CartPole-v1 as array operations."""
    dynamics = CartPole()
    bounds = (2 * MAX_POSITION, math.inf, 2 * MAX_ANGLE, math.inf)
    spec = Spec(Box(tuple(-bound for bound in bounds), bounds), Discrete(2), HORIZON)
    return SteppedTask(
        "cartpole",
        spec,
        partial(ArraySimulation, dynamics),
        balance,
        dynamics,
        on_device=partial(TensorSimulation, dynamics),
    )


LEVELS = {"cartpole": cartpole}
