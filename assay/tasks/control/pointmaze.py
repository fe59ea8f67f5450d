"""Point mazes: push a point mass through a maze to a goal, similar to D4RL's maze2d (arXiv:2004.07219).

Axes: N instances. Cells are 1 wide; the goal counts as reached within 0.45 of it, as in Gymnasium-Robotics' PointMaze.

    velocity <- 0.8 velocity + 0.05 force;   position <- position + velocity, axis by axis; a wall stops that axis
    reward = 1 at the goal, where the episode ends

`roaming` is the same maze without ends: a reached goal is replaced by another, which generates play data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.mazes import Maze, another_goal, maze_task, two_cells
from assay.tasks.control.stepping import SteppedTask

DRAG, THRUST = 0.8, 0.05
TOP_SPEED = THRUST / (1.0 - DRAG)
RADIUS = 0.45
ASIDE = 0.5
"""Starts and goals are up to half of this away from the centre of their cells."""
EDGE = 1e-6
At = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(y, x) of a coordinate that moves."""
UMAZE = Maze(("#####", "#...#", "###.#", "#...#", "#####"))
MEDIUM = Maze((
    "########",
    "#...#..#",
    "#.#....#",
    "#.##.#.#",
    "#....#.#",
    "##.###.#",
    "#......#",
    "########",
))  # fmt: skip
LARGE = Maze((
    "############",
    "#....#.....#",
    "#.##...###.#",
    "#.#..#.#...#",
    "#.#.##.#.#.#",
    "#......#.#.#",
    "##.##.##.#.#",
    "#...#....#.#",
    "############",
))  # fmt: skip


@dataclass(frozen=True)
class PointMaze:
    """Rows of a state: x, y, velocity in x and y, and the goal's x and y, in cells from the upper left corner."""

    maze: Maze
    split: int
    limit: int
    has_chance: bool = False
    """Whether a goal that is reached is replaced by another, by chance, instead of ending the episode."""
    num_start_draws: ClassVar[int] = 6

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Starts at rest near the centre of a cell, with a goal in another one."""
        start, goal = two_cells(self.maze, self.maze.goals(self.split), uniform[:2])
        position, there = middle(self.maze, start), middle(self.maze, goal)
        off = ASIDE * (uniform[2:] - 0.5)
        return np.concatenate([position + off[:2], np.zeros_like(position), there + off[2:]])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one push; reward 1 at the goal."""
        velocity = DRAG * state[2:4] + THRUST * action.T.astype(np.float64).clip(-1.0, 1.0)
        x, velocity_x = stopped(self.maze, state[0], velocity[0], lambda x: (state[1], x))
        y, velocity_y = stopped(self.maze, state[1], velocity[1], lambda y: (y, x))
        goal = state[4:]
        reached = np.hypot(x - goal[0], y - goal[1]) <= RADIUS
        terminal = reached
        if uniform is not None:
            goal = np.where(reached, self.next_goal(x, y, uniform), goal)
            terminal = np.zeros_like(reached)
        moved = np.stack([x, y, velocity_x, velocity_y, goal[0], goal[1]])
        return moved, reached.astype(np.float32), terminal

    def next_goal(self, x: np.ndarray, y: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Draws a goal in another cell; the later digits of the uniform number give its offset from the centre."""
        goals = self.maze.goals(self.split)
        cell = another_goal(goals, self.maze.number[y.astype(np.int64), x.astype(np.int64)], uniform)
        rest = uniform * len(goals) % 1.0
        there: np.ndarray = middle(self.maze, cell) + ASIDE * (np.stack([rest, rest * 1024.0 % 1.0]) - 0.5)
        return there

    def observe(self, state: np.ndarray) -> Context:
        """Returns position (also `achieved`) and goal, the longer side from -1 to 1; velocity over the top speed."""
        here, there = scaled(self.maze, state[:2]), scaled(self.maze, state[4:])
        seen = np.concatenate([here, state[2:4] / TOP_SPEED]).T.astype(np.float32)
        goal, achieved = (torch.from_numpy(place.T.astype(np.float32)) for place in (there, here))
        return {"observation": torch.from_numpy(seen), "goal": goal, "achieved": achieved}


def stopped(maze: Maze, place: np.ndarray, speed: np.ndarray, at: At) -> tuple[np.ndarray, np.ndarray]:
    """Returns a coordinate after one step and its speed; at a wall it stays on this side of the edge, at rest.

    No step is as long as a cell, so no wall can be jumped over.
    """
    moved = place + speed
    row, column = at(moved)
    hit = ~maze.free[row.astype(np.int64), column.astype(np.int64)]
    edge = np.where(speed > 0, np.floor(moved) - EDGE, np.floor(place) + EDGE)
    return np.where(hit, edge, moved), np.where(hit, 0.0, speed)


def middle(maze: Maze, cell: np.ndarray) -> np.ndarray:
    """Returns x and y of the centre of numbered cells, [2, n]."""
    place: np.ndarray = maze.cells[cell].T[::-1] + 0.5
    return place


def scaled(maze: Maze, place: np.ndarray) -> np.ndarray:
    """Returns places in cells as numbers from -1 to 1 along the longer side."""
    return 2.0 * place / max(maze.free.shape) - 1.0


def steered(maze: Maze, context: Context) -> Tensor:
    """Returns the force towards the next cell of a shortest path, in the goal's cell towards the goal; damped."""
    seen, goal = context["observation"].double().numpy().T, context["goal"].double().numpy().T
    size = max(maze.free.shape)
    place, there = (seen[:2] + 1.0) * size / 2.0, (goal + 1.0) * size / 2.0
    cell, last = (maze.number[tuple(at[::-1].astype(np.int64))] for at in (place, there))
    onward = middle(maze, maze.neighbours[cell, maze.first_move[cell, last]])
    target = np.where(cell == last, there, onward)
    force = 6.0 * (target - place) - 1.5 * seen[2:]
    return torch.from_numpy(force.T.clip(-1.0, 1.0).astype(np.float32))


def cells_between(maze: Maze, achieved: Tensor, goal: Tensor) -> Tensor:
    """Returns the cells of the shortest path, each of which takes several decisions."""
    places = [
        ((place.double().numpy() + 1.0) * max(maze.free.shape) / 2.0).astype(np.int64) for place in (achieved, goal)
    ]
    here, there = (maze.number[place[..., 1], place[..., 0]] for place in places)
    return torch.from_numpy(maze.distance[here, there])


def point_task(name: str, maze: Maze, horizon: int) -> SteppedTask:
    """Returns the task of a maze; held-out episodes have goals of their own."""
    places, force = Box((-1.0,) * 2, (1.0,) * 2), Box((-1.0,) * 2, (1.0,) * 2)
    spec = Spec(Box((-1.0,) * 4, (1.0,) * 4), force, horizon, goal=places)
    return maze_task(name, spec, partial(PointMaze, maze), partial(steered, maze), partial(cells_between, maze))


LEVELS = {
    "pointmaze-umaze": partial(point_task, "pointmaze-umaze", UMAZE, 80),
    "pointmaze-medium": partial(point_task, "pointmaze-medium", MEDIUM, 150),
    "pointmaze-large": partial(point_task, "pointmaze-large", LARGE, 250),
}
