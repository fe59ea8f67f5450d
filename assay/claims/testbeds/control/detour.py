"""A detour: a point walks around an obstacle to the far side, and what it clones must bring it past every time.

    s = (x, y), from (-0.9, -0.3 .. 0.3);   s' = s + 0.1 a;   a disc of radius 0.35 in the middle ends an episode unpaid
    reward = 1 where x >= 0.85, which ends it;   the expert heads for (-0.1, 0.6), then for (0.9, 0.3)

In held-out episodes the system adds normal noise of `noise` half-ranges to every action; training episodes have none,
so that data get what noise they are made with. Degenerate: with noise 0 both are the same.

Axes: N instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import at_least, name_with_dials
from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.disturbed import MakeDisturbed
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

STEP, RADIUS, FAR = 0.1, 0.35, 0.85


@dataclass(frozen=True)
class Detour:
    """Rows of a state: x, y."""

    num_start_draws: ClassVar[int] = 1
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = 40

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws a place on the left."""
        return np.stack((np.full_like(uniform[0], -0.9), 0.6 * uniform[0] - 0.3))

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Moves; pays and ends on the right, ends unpaid in the disc."""
        moved = (state + STEP * action.T.astype(np.float64).clip(-1.0, 1.0)).clip(-1.0, 1.0)
        there = moved[0] >= FAR
        return moved, there.astype(np.float32), there | (np.hypot(*moved) < RADIUS)

    def observe(self, state: np.ndarray) -> Context:
        """Returns both numbers."""
        return {"observation": torch.from_numpy(state.T.astype(np.float32))}


def around(context: Context) -> Tensor:
    """Heads for the place above the disc, then for the right."""
    seen = context["observation"]
    target = torch.where(seen[:, :1] < -0.15, seen.new_tensor([-0.1, 0.6]), seen.new_tensor([0.9, 0.3]))
    ahead = target - seen
    return 0.8 * ahead / ahead.norm(dim=1, keepdim=True).clamp(min=0.05)


def detour(noise: float = 0.4) -> SteppedTask:
    """Returns the task."""
    at_least("detour", 0.0, noise=noise)
    space, make = Box((-1.0,) * 2, (1.0,) * 2), partial(ArraySimulation, Detour())
    spec = Spec(Box((-1.0,) * 2, (1.0,) * 2), space, Detour.limit)
    held_out = MakeDisturbed(make, noise, space)
    name = name_with_dials("detour", noise=(noise, 0.4))
    return SteppedTask(name, spec, make, around, Detour(), held_out)
