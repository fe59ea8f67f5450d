"""Grids with goals: walk through a drawn maze to the goal cell; reward 1 there, where the episode ends.

Axes: N instances. Observations are coordinates between -1 and 1, as goals are, and which moves are open. `roaming` is
the same grid without ends: a reached goal is replaced by another, which generates play data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Discrete, Spec
from assay.tasks.control.mazes import Maze, another_goal, maze_task, two_cells
from assay.tasks.control.stepping import SteppedTask

FOUR_ROOMS = Maze((
    "###########",
    "#....#....#",
    "#....#....#",
    "#.........#",
    "#....#....#",
    "##.####...#",
    "#....##.###",
    "#....#....#",
    "#.........#",
    "#....#....#",
    "###########",
))  # fmt: skip
SMALL_ROOMS = Maze((
    "#######",
    "#..#..#",
    "#.....#",
    "##.##.#",
    "#..#..#",
    "#.....#",
    "#######",
))  # fmt: skip
CORRIDOR = Maze((
    "###############",
    "#.............#",
    "#############.#",
    "#.............#",
    "#.#############",
    "#.............#",
    "#############.#",
    "#.............#",
    "#.#############",
    "#.............#",
    "#############.#",
    "#.............#",
    "#.#############",
    "#.............#",
    "###############",
))  # fmt: skip
"""One winding path of 97 cells."""


@dataclass(frozen=True)
class GoalGrid:
    """Rows of a state: the cell, and the goal cell."""

    maze: Maze
    split: int
    limit: int
    has_chance: bool = False
    """Whether a goal that is reached is replaced by another, by chance, instead of ending the episode."""
    num_start_draws: ClassVar[int] = 2

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws a goal, and any other cell to start in."""
        return np.stack(two_cells(self.maze, self.maze.goals(self.split), uniform))

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Moves one cell; reward 1 at the goal."""
        cell, goal = self.maze.neighbours[state[0], action], state[1]
        reached = cell == goal
        if uniform is None:
            return np.stack([cell, goal]), reached.astype(np.float32), reached
        goal = np.where(reached, another_goal(self.maze.goals(self.split), cell, uniform), goal)
        return np.stack([cell, goal]), reached.astype(np.float32), np.zeros_like(reached)

    def observe(self, state: np.ndarray) -> Context:
        """Returns coordinates of the cell (`achieved` too) and of the goal; which moves are open from here."""
        here, there = (torch.from_numpy(coordinates(self.maze, cell)) for cell in state)
        is_open = torch.from_numpy(self.maze.neighbours[state[0]] != state[0][:, None])
        return {"observation": torch.cat([here, is_open.float()], 1), "goal": there, "achieved": here}


def coordinates(maze: Maze, cell: np.ndarray) -> np.ndarray:
    """Returns column and row of numbered cells [..., 2] as float32; the longer side of the maze goes from -1 to 1."""
    size = max(maze.free.shape) - 1
    place: np.ndarray = (2.0 * maze.cells[cell][..., ::-1] / size - 1.0).astype(np.float32)
    return place


def cells_at(maze: Maze, place: Tensor) -> np.ndarray:
    """Returns the numbers of the cells with these coordinates."""
    at = ((place.double().numpy() + 1.0) / 2.0 * (max(maze.free.shape) - 1)).round().astype(np.int64)
    return maze.number[at[..., 1], at[..., 0]]


def shortest_way(maze: Maze, context: Context) -> Tensor:
    """Returns the first move of a shortest path."""
    return torch.from_numpy(maze.first_move[cells_at(maze, context["achieved"]), cells_at(maze, context["goal"])])


def steps_between(maze: Maze, achieved: Tensor, goal: Tensor) -> Tensor:
    """Returns the number of moves of the shortest path."""
    return torch.from_numpy(maze.distance[cells_at(maze, achieved), cells_at(maze, goal)])


def grid_task(name: str, maze: Maze, horizon: int) -> SteppedTask:
    """Returns the task of a maze; held-out episodes have goals of their own."""
    places = Box((-1.0, -1.0), (1.0, 1.0))
    seen = Box((-1.0,) * 2 + (0.0,) * 4, (1.0,) * 6)
    spec = Spec(seen, Discrete(4), horizon, goal=places)
    return maze_task(name, spec, partial(GoalGrid, maze), partial(shortest_way, maze), partial(steps_between, maze))


LEVELS = {
    "four-rooms": partial(grid_task, "four-rooms", FOUR_ROOMS, 50),
    "small-rooms": partial(grid_task, "small-rooms", SMALL_ROOMS, 30),
    "corridor": partial(grid_task, "corridor", CORRIDOR, 200),
}
