"""Mazes on a torus: all shortest paths are known, for any goal, and the optimum of twenty rewards.

Axes: C cells, N instances, B episodes, T decisions.

A square of cells without a border, some of whose passages are walled up. The goal pays 1 and ends the episode; what a
decision loses is 1 + distance after - distance before: 0 on a shortest path. Held-out episodes have goals that training
never has. The dataset is play, another one for each seed: shortest paths from goal to goal with a share `noise` of
random moves. `reward_process` is one of twenty rewards over cells as a finite process with its exact Q*, and
`reward_score` the normalised value of actions for it, for methods that infer a policy from a reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.finite import Finite
from assay.claims.testbeds.control.regret import RegretTask, at_least, named, share
from assay.core.record import Draw, Experience, Origin
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.ops import random
from assay.tasks.control.mazes import HELD_OUT, MOVES, ROAMING, another_goal
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

REWARDS = 20


@dataclass(frozen=True)
class Torus:
    """Moves up, right, down and left on size x size cells; `walls` is the share of passages that are tried as walls."""

    size: int
    walls: float
    instance: int

    @cached_property
    def neighbours(self) -> np.ndarray:
        """Returns [C, 4]: where each move leads; a wall stops. A spanning tree of passages stays open."""
        cell = np.arange(self.size**2)
        place = np.stack(np.divmod(cell, self.size), 1)[:, None] + MOVES
        there = (place % self.size) @ np.array([self.size, 1])
        group, after = cell.copy(), there.copy()
        order = random.permutation(Draw(self.instance, (47,)), 2 * len(cell))
        blocked = random.uniform(Draw(self.instance, (48,)), np.arange(2 * len(cell))) < self.walls
        for passage in order:
            here, move = passage // 2, 1 + passage % 2  # right and down: each passage once
            other = there[here, move]
            if group[here] != group[other]:
                group[group == group[other]] = group[here]
            elif blocked[passage]:
                after[here, move], after[other, (move + 2) % 4] = here, other
        return after

    @cached_property
    def distance(self) -> np.ndarray:
        """Returns [C, C]: moves of a shortest path, by breadth-first search from all cells at once."""
        num = self.size**2
        found, frontier = np.full((num, num), -1), np.eye(num, dtype=bool)
        for steps in range(num):
            found[frontier] = steps
            frontier = frontier[self.neighbours].any(1) & (found < 0)
        return found

    @cached_property
    def losses(self) -> np.ndarray:
        """Returns [C, 4, C]: what a move loses on the way to each goal."""
        after: np.ndarray = self.distance[self.neighbours]
        return 1 + after - self.distance[:, None]

    def goals(self, split: int) -> np.ndarray:
        """Returns the goal cells of a split."""
        cell = np.arange(self.size**2)
        return cell[(random.hashed(Draw(self.instance, (49,)), cell) % np.uint64(HELD_OUT) == 0) == bool(split)]

    def seen(self, cell: np.ndarray) -> np.ndarray:
        """Returns cosine and sine of row and column, [..., 4] float32."""
        angle = 2.0 * math.pi * np.stack(np.divmod(cell, self.size), -1) / self.size
        return np.concatenate([np.cos(angle), np.sin(angle)], -1).astype(np.float32)

    def cells(self, seen: Tensor) -> np.ndarray:
        """Returns the cells that are seen as [..., 4]."""
        angle = torch.atan2(seen[..., 2:4].double(), seen[..., :2].double()).numpy() / (2.0 * math.pi)
        place = np.rint(angle * self.size).astype(np.int64) % self.size
        return place @ np.array([self.size, 1])


@dataclass(frozen=True)
class TorusWalk:
    """Rows of a state: the cell, and the goal cell."""

    torus: Torus
    split: int
    limit: int
    has_chance: bool = False
    """Whether a goal that is reached is replaced by another, by chance, instead of ending the episode."""
    num_start_draws: ClassVar[int] = 2

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws a goal, and any other cell to start in."""
        goals = self.torus.goals(self.split)
        goal = goals[(uniform[0] * len(goals)).astype(np.int64)]
        start = (uniform[1] * (self.torus.size**2 - 1)).astype(np.int64)
        return np.stack([start + (start >= goal), goal])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Moves one cell; reward 1 at the goal."""
        cell, goal = self.torus.neighbours[state[0], action], state[1]
        reached = cell == goal
        if uniform is None:
            return np.stack([cell, goal]), reached.astype(np.float32), reached
        goal = np.where(reached, another_goal(self.torus.goals(self.split), cell, uniform), goal)
        return np.stack([cell, goal]), reached.astype(np.float32), np.zeros_like(reached)

    def observe(self, state: np.ndarray) -> Context:
        """Returns the place (`achieved` too) and which moves are open; the goal's place."""
        here, there = (torch.from_numpy(self.torus.seen(cell)) for cell in state)
        is_open = torch.from_numpy(self.torus.neighbours[state[0]] != state[0][:, None])
        return {"observation": torch.cat([here, is_open.float()], 1), "goal": there, "achieved": here}

    def losses(self, experience: Experience) -> Tensor:
        """Returns what each decision loses, [B, T]."""
        here, goal = (self.torus.cells(experience.context[key]) for key in ("achieved", "goal"))
        return torch.from_numpy(self.torus.losses[here, experience.action.numpy(), goal]).float()

    @property
    def scale(self) -> float:
        """Returns what uniform moves lose in an episode, in the mean over starts and goals, by recursion in time."""
        goals, num = self.torus.goals(self.split), self.torus.size**2
        lost, value = self.torus.losses[:, :, goals].mean(1), np.zeros((num, len(goals)))
        at_goal = np.arange(num)[:, None] == goals
        for _ in range(self.limit):
            value = lost + np.where(at_goal, 0.0, value)[self.torus.neighbours].mean(1)
        return float(value[~at_goal].mean())


@dataclass(frozen=True)
class Wanderer:
    """Moves on a shortest path, or at random with probability `noise`."""

    torus: Torus
    noise: float
    num_draws: ClassVar[int] = 2

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0."""
        assert uniform is not None
        anything = (uniform[:, 1] * 4).long().clamp(max=3)
        action = torch.where(uniform[:, 0] < self.noise, anything, shortest(self.torus, context))
        return action, torch.zeros(len(action))


def shortest(torus: Torus, context: Context) -> Tensor:
    """Returns the first move of a shortest path; ties go to the lowest number."""
    here, goal = (torus.cells(context[key]) for key in ("achieved", "goal"))
    return torch.from_numpy(torus.losses[here, :, goal].argmin(-1))


def steps_between(torus: Torus, achieved: Tensor, goal: Tensor) -> Tensor:
    """Returns the number of moves of a shortest path."""
    return torch.from_numpy(torus.distance[torus.cells(achieved), torus.cells(goal)])


def recorded(roaming: SteppedTask, actor: Wanderer, episodes: int, draw: Draw) -> Experience:
    """Returns the play of a draw."""
    own = Draw(draw.seed, (50,))
    starts = random.integers(own, 2**40, episodes)
    played = roaming.play(actor, starts, np.zeros_like(starts), own, split=0, greedy=False)
    return replace(played, source=torch.full((episodes,), int(Origin.DATASET)))


def reward_process(torus: Torus, which: int) -> Finite:
    """Returns reward `which` of twenty as a process: a tenth of the cells pay when they are left, each its own number;
    an episode ends with probability 1/10 at each decision.
    """
    cell, draw = np.arange(torus.size**2), Draw(torus.instance, (51, which))
    pays = random.uniform(draw, 0, cell) * (random.uniform(draw, 1, cell) < 0.1)
    return Finite(torus.neighbours[..., None], np.repeat(pays[:, None], 4, 1), len(cell), 100, stop=0.1)


def reward_score(torus: Torus, which: int, action: np.ndarray) -> float:
    """Returns the exact value of one action for each cell [C] under a reward: 0 for uniform moves, 1 for the best."""
    process = reward_process(torus, which)
    lost = process.values().max(1) - process.policy_value(np.eye(4)[action])
    return float(1.0 - lost.mean() / process.scale)


def torus_maze(
    size: int = 10, walls: float = 0.5, noise: float = 0.3, episodes: int = 20, instance: int = 0
) -> RegretTask:
    """Returns the task with its dataset; `instance` numbers independent mazes."""
    share("torus-maze", walls=walls, noise=noise)
    at_least("torus-maze", 4, size=size)
    at_least("torus-maze", 1, episodes=episodes)
    name = named(
        "torus-maze",
        size=(size, 10),
        walls=(walls, 0.5),
        noise=(noise, 0.3),
        episodes=(episodes, 20),
        instance=(instance, 0),
    )
    torus, limit = Torus(size, walls, instance), 4 * size
    here, held_out = TorusWalk(torus, 0, limit), TorusWalk(torus, 1, limit)
    unit = Box((-1.0,) * 4, (1.0,) * 4)
    spec = Spec(Box((-1.0,) * 4 + (0.0,) * 4, (1.0,) * 8), Discrete(4), limit, goal=unit)
    expert, roams = partial(shortest, torus), TorusWalk(torus, 0, ROAMING, has_chance=True)
    roaming = SteppedTask(
        f"{name}, roaming", replace(spec, horizon=ROAMING), partial(ArraySimulation, roams), expert, roams
    )
    return RegretTask(
        name,
        spec,
        partial(ArraySimulation, here),
        expert,
        here,
        partial(ArraySimulation, held_out),
        roaming,
        distance=partial(steps_between, torus),
        losses=held_out.losses,
        scale=held_out.scale,
        logged=partial(recorded, roaming, Wanderer(torus, noise), episodes),
    )
