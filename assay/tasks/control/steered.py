"""Steered hazards: the point of `hazards`, steered by a thrust in any direction.

    velocity <- 0.8 velocity + 0.04 thrust, thrust in [-1, 1]^2;   the rest, rewards and costs are those of `hazards`

A point moves up to 0.2 per decision and cannot stop at once, so some states outside a disc lead into it whatever the
actions: `avoidable` finds them by trying manoeuvres.

Axes: N instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.costs import costed
from assay.tasks.control.hazards import HAZARDS, HORIZON, Hazards, inside, pushed
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

THRUST = 0.04
DIRECTIONS, AHEAD = 32, 12
"""Manoeuvres that `avoidable` tries, and for how many decisions: by then the speed is that of the thrust."""


@dataclass(frozen=True)
class Steered:
    """Rows of a state: x, y, velocity in x and y."""

    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Starts at rest on the left."""
        return Hazards().start(uniform)

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step; rewards progress towards the goal."""
        return pushed(state, THRUST * action.reshape(-1, 2).astype(np.float64).clip(-1.0, 1.0).T)

    def observe(self, state: np.ndarray) -> Context:
        """Returns position, ten times the velocity, and the distance to the edge of each disc (negative inside)."""
        return Hazards().observe(state)


def to_target(context: Context, x: Tensor, y: Tensor) -> Tensor:
    """Returns thrust [N, 2] towards a place, with the present speed taken into account, of length up to 1."""
    seen = context["observation"]
    want = 4.0 * (torch.stack((x, y), 1) - seen[:, :2] - 0.3 * seen[:, 2:4])
    return want / want.norm(dim=1, keepdim=True).clamp(min=1.0)


def around(context: Context) -> Tensor:
    """Steers around the discs: to a gate beside the middle one while it is ahead, then to the goal."""
    x, y = context["observation"][:, :2].unbind(1)
    side = torch.where(y >= 0, 0.43, -0.43)
    before_gate, ahead = (x < -0.25) & ((y - side).abs() > 0.08), x < 0.3
    goal_x = torch.where(before_gate, -0.35, torch.where(ahead, 0.45, 0.8))
    return to_target(context, goal_x, torch.where(ahead, side, 0.0))


def straight(context: Context) -> Tensor:
    """Steers straight to the goal, through any disc."""
    x = context["observation"][:, 0]
    return to_target(context, torch.full_like(x, 0.8), torch.zeros_like(x))


def avoidable(state: np.ndarray) -> np.ndarray:
    """Returns [N] bool: whether some constant thrust of full length, or none, keeps states [4, N] out of all discs from
    the next position on. True is certain; false may be wrong, since other manoeuvres are not tried.
    """
    angle = 2.0 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    thrusts = THRUST * np.concatenate([np.stack([np.cos(angle), np.sin(angle)], 1), np.zeros((1, 2))])
    found = np.zeros(state.shape[1], bool)
    for thrust in thrusts:
        moved, clear = state, np.ones(state.shape[1], bool)
        for _ in range(AHEAD):
            moved, _, _ = pushed(moved, thrust[:, None])
            clear &= ~in_disc(moved)
        found |= clear
    return found


def in_disc(state: np.ndarray) -> np.ndarray:
    """Returns [N] bool: inside any disc."""
    within = [np.hypot(state[0] - x, state[1] - y) < radius for x, y, radius in HAZARDS]
    return np.logical_or.reduce(within)


def steered_hazards() -> SteppedTask:
    """Returns the task; its cost is 1 for every decision that leads into a disc, or stays in one."""
    dynamics, num_seen = Steered(), 4 + len(HAZARDS)
    spec = Spec(Box((-3.0,) * num_seen, (3.0,) * num_seen), Box((-1.0, -1.0), (1.0, 1.0)), HORIZON)
    make = partial(ArraySimulation, dynamics)
    return costed(
        SteppedTask("steered-hazards", spec, make, around, dynamics, reckless=straight), "steered-hazards", inside
    )


LEVELS = {"steered-hazards": steered_hazards}
