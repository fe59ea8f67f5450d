"""Mazes drawn as text: free cells, moves, shortest paths between all pairs by breadth-first search, and tasks in them.

Axes: C free cells, H rows, W columns. `#` is wall, anything else is free. Moves are up, right, down and left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.spaces import Context, Spec
from assay.tasks.control.stepping import ArraySimulation, Dynamics, SteppedTask

MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
"""Changes of row and column by up, right, down and left."""
HELD_OUT = 4
"""One in this many cells is a goal of held-out episodes only."""
ROAMING = 200
"""Decisions of an episode of play."""


@dataclass(frozen=True)
class Maze:
    """A drawing of equally long lines whose border is wall and whose free cells are connected."""

    drawing: tuple[str, ...]

    def __post_init__(self) -> None:
        free = self.free
        if free[0].any() or free[-1].any() or free[:, 0].any() or free[:, -1].any():
            raise AssayError("the border of the maze is not closed. Draw '#' all around")
        if len(self.cells) < 2 or (self.distance < 0).any():
            raise AssayError("the maze has fewer than two free cells, or unconnected ones. Draw connected free cells")

    @cached_property
    def free(self) -> np.ndarray:
        """Returns [H, W]: where there is no wall."""
        if len({len(line) for line in self.drawing}) != 1:
            raise AssayError("the lines of the maze differ in length. Draw equally long lines")
        return np.array([[letter != "#" for letter in line] for line in self.drawing])

    @cached_property
    def cells(self) -> np.ndarray:
        """Returns [C, 2]: row and column of each free cell, in reading order."""
        return np.argwhere(self.free)

    @cached_property
    def number(self) -> np.ndarray:
        """Returns [H, W]: the number of each free cell; 0 on walls, which are never looked up."""
        places: np.ndarray = np.cumsum(self.free).reshape(self.free.shape) - 1
        return np.where(self.free, places, 0)

    @cached_property
    def neighbours(self) -> np.ndarray:
        """Returns [C, 4]: the cell that each move leads to; walls stop."""
        there = self.cells[:, None] + MOVES
        stays = np.arange(len(self.cells))[:, None]
        return np.where(self.free[there[..., 0], there[..., 1]], self.number[there[..., 0], there[..., 1]], stays)

    @cached_property
    def distance(self) -> np.ndarray:
        """Returns [C, C]: moves of the shortest path from each cell to each; -1 without a path."""
        num = len(self.cells)
        found, frontier = np.full((num, num), -1), np.eye(num, dtype=bool)
        for steps in range(num):
            found[frontier] = steps
            frontier = frontier[self.neighbours].any(1) & (found < 0)
        return found

    @cached_property
    def first_move(self) -> np.ndarray:
        """Returns [C, C]: the first move of a shortest path from each cell to each; ties go to the lowest number."""
        return self.distance[self.neighbours].argmin(1)

    def goals(self, split: int) -> np.ndarray:
        """Returns the goal cells of this split: those of split 1 are goals of no training episode."""
        places = np.arange(len(self.cells))
        return places[(places % HELD_OUT == 2) == bool(split)]


def two_cells(maze: Maze, goals: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (start, goal) from uniform numbers [2, n]: one of the goals, and any other cell."""
    goal = goals[(uniform[0] * len(goals)).astype(np.int64)]
    start = (uniform[1] * (len(maze.cells) - 1)).astype(np.int64)
    return start + (start >= goal), goal


def another_goal(goals: np.ndarray, here: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Returns one of the goals for each row that is not the cell `here`."""
    drawn = (uniform * len(goals)).astype(np.int64)
    other = (drawn + 1) % len(goals)
    return np.where(goals[drawn] == here, goals[other], goals[drawn])


def maze_task(
    name: str,
    spec: Spec,
    moves: Callable[..., Dynamics[np.ndarray]],
    expert: Callable[[Context], Tensor],
    distance: Callable[[Tensor, Tensor], Tensor],
) -> SteppedTask:
    """Returns the task of `moves(split, limit, has_chance)`; held-out episodes have goals of their own, and in the
    roaming task a goal that is reached is followed by another.
    """
    here = moves(split=0, limit=spec.horizon)
    held_out, roams = moves(split=1, limit=spec.horizon), moves(split=0, limit=ROAMING, has_chance=True)
    roaming = SteppedTask(f"{name}, roaming", replace(spec, horizon=ROAMING), partial(ArraySimulation, roams), expert)
    make, other = partial(ArraySimulation, here), partial(ArraySimulation, held_out)
    return SteppedTask(name, spec, make, expert, here, other, roaming, distance=distance)
