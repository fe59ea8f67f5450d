"""peg: move a peg over a table into a hole; the only reward is 1 for being in it, where the episode ends.

Axes: N instances. The peg starts on the left of the table [-1, 1]^2 and moves up to 0.1 a decision in each direction;
the hole is a disc on the right with free table behind it, where no demonstration goes.
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


def peg() -> SteppedTask:
    """The task."""
    table = Box((-1.0, -1.0), (1.0, 1.0))
    return SteppedTask("peg", Spec(table, table, HORIZON), partial(ArraySimulation, Peg()), straight, Peg())


LEVELS = {"peg": peg}
