"""peg: move a peg over a table into a hole; the only reward is 1 for being in it, where the episode ends.

Axes: N instances. The peg starts on the left of the table [-1, 1]^2 and moves up to 0.1 a decision in each direction;
the hole is a disc on the right with free table behind it, where no demonstration goes. In walled-peg two walls stand
before the hole, each with a gap, one above and one below the straight way: the hole is near where a wall stops the peg.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

HOLE, RADIUS, STEP, HORIZON = 0.4, 0.12, 0.1, 40
"""The hole's x (its y is 0) and radius, the longest step, decisions of an episode."""
EDGE = 1e-3
"""How far before a wall a peg stops."""


@dataclass(frozen=True)
class Peg:
    """Rows of a state: x and y."""

    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """On the left, anywhere along the edge."""
        return np.stack([-1.0 + 0.4 * uniform[0], -1.0 + 2.0 * uniform[1]])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One move; the table's edge stops it."""
        moved = (state + STEP * action.reshape(-1, 2).T.astype(np.float64).clip(-1.0, 1.0)).clip(-1.0, 1.0)
        is_in = np.hypot(moved[0] - HOLE, moved[1]) <= RADIUS
        return moved, is_in.astype(np.float32), is_in

    def observe(self, state: np.ndarray) -> Context:
        """The place."""
        return {"observation": torch.from_numpy(state.T.astype(np.float32))}


def straight(context: Context) -> Tensor:
    """Straight to the hole."""
    way = torch.tensor([HOLE, 0.0]) - context["observation"]
    return (way / STEP).clamp(-1.0, 1.0)


WALLS, HALF_GAP, WALLED_HORIZON = ((-0.3, 0.4), (0.1, -0.4)), 0.2, 80
"""x of each wall and y of its gap's middle, half the width of a gap, decisions of an episode with walls."""


@dataclass(frozen=True)
class WalledPeg(Peg):
    """The same with walls: a step that meets one outside of its gap ends at it, in x."""

    limit: ClassVar[int] = WALLED_HORIZON

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One move; the table's edge and walls stop it."""
        (x, y), (to_x, to_y) = state, super().step(state, action, uniform)[0]
        at_x = to_x
        for wall, gap in WALLS:
            crosses = (x < wall) != (at_x < wall)
            meets = y + (to_y - y) * (wall - x) / np.where(crosses, to_x - x, 1.0)
            before = np.where(x < wall, wall - EDGE, wall)
            at_x = np.where(crosses & (np.abs(meets - gap) > HALF_GAP), before, at_x)
        is_in = np.hypot(at_x - HOLE, to_y) <= RADIUS
        return np.stack([at_x, to_y]), is_in.astype(np.float32), is_in


def through_gaps(context: Context) -> Tensor:
    """To the height of the next gap, a step before its wall, then through it; behind the walls straight to the hole."""
    x, y = context["observation"].unbind(-1)
    to_x, to_y = torch.full_like(x, HOLE), torch.zeros_like(y)
    for wall, gap in reversed(WALLS):
        is_level, is_before = (y - gap).abs() < 0.5 * HALF_GAP, x < wall
        to_x = torch.where(is_before, torch.where(is_level, wall + STEP, wall - STEP), to_x)
        to_y = torch.where(is_before, gap, to_y)
    return ((torch.stack([to_x, to_y], -1) - context["observation"]) / STEP).clamp(-1.0, 1.0)


def walled_peg() -> SteppedTask:
    """The task with two walls."""
    table, walled = Box((-1.0, -1.0), (1.0, 1.0)), WalledPeg()
    spec = Spec(table, table, WALLED_HORIZON)
    make = partial(ArraySimulation, walled)
    return SteppedTask("walled-peg", spec, make, through_gaps, walled, rewards_success=True)


def peg() -> SteppedTask:
    """The task."""
    table = Box((-1.0, -1.0), (1.0, 1.0))
    spec, make = Spec(table, table, HORIZON), partial(ArraySimulation, Peg())
    return SteppedTask("peg", spec, make, straight, Peg(), rewards_success=True)


LEVELS = {"peg": peg, "walled-peg": walled_peg}
