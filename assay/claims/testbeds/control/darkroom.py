"""A darkroom: a square in which one cell pays 1 for each decision spent there, and nothing shows which one it is.

An episode is a trial of several attempts at one goal; each begins in the middle after `attempt` decisions, so what was
found in one attempt helps in the next ones. Goals are all cells but the middle, a quarter of which are held out. The
score is the share of decisions at the goal.

The dataset of a draw has `agents` histories for each training goal, one after the other. An agent walks at random at
first, and straight to the goal ever more often from attempt to attempt, at a speed of its own (arXiv:2312.12275); a
share `noise` of them never learns.

Axes: N instances, G goals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import RegretTask, at_least, name_with_dials, share
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Origin
from assay.core.slots import History
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.ops import random
from assay.rollouts.episodes import play_episodes
from assay.tasks.control.history import Remembered
from assay.tasks.control.stepping import ArraySimulation

MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
"""Column and row of each action: stay, right, left, up, down."""
AT_ONCE = 60
"""Held-out trials of an evaluation."""


@dataclass(frozen=True)
class Darkroom:
    """Rows of a state: column and row from the middle, those of the goal, and the decisions of the trial so far."""

    reach: int
    attempt: int
    attempts: int
    split: int = 0
    num_start_draws: ClassVar[int] = 1
    has_chance: ClassVar[bool] = False

    @property
    def limit(self) -> int:
        """Returns the decisions of a trial."""
        return self.attempt * self.attempts

    @cached_property
    def goals(self) -> np.ndarray:
        """Returns the goals of the split, [G, 2]: a quarter of the cells is held out."""
        line = np.arange(-self.reach, self.reach + 1)
        cells = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
        cells = cells[cells.any(1)]
        cells = cells[random.permutation(Draw(0, (49,)), len(cells))]
        held_out = len(cells) // 4
        return cells[:held_out] if self.split else cells[held_out:]

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws a goal; a trial begins in the middle."""
        goal = self.goals[(uniform[0] * len(self.goals)).astype(np.int64)]
        return np.concatenate([np.zeros_like(goal), goal, np.zeros_like(goal[:, :1])], 1).T

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Moves one cell, walls stop; the last decision of an attempt leads back to the middle."""
        moved = state.copy()
        moved[:2] = (state[:2] + MOVES[action].T).clip(-self.reach, self.reach)
        moved[4] += 1
        reached = (moved[:2] == state[2:4]).all(0)
        moved[:2, moved[4] % self.attempt == 0] = 0
        return moved, reached.astype(np.float32), np.zeros_like(reached)

    def observe(self, state: np.ndarray) -> Context:
        """Returns column and row, from -1 to 1."""
        return {"observation": torch.from_numpy((state[:2].T / self.reach).astype(np.float32))}


class Placed(ArraySimulation):
    """Instances with these goals, [N, 2]."""

    def __init__(self, dynamics: Darkroom, goals: np.ndarray) -> None:
        self.given = goals
        super().__init__(dynamics, len(goals))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts a trial of every instance."""
        context = super().reset(seeds)
        self._state[2:4] = self.given.T
        return context


@dataclass(frozen=True)
class Agents:
    """Walks to the goals [N, 2] with a chance that rises with the attempts by `speed` [N], else at random."""

    room: Darkroom
    goal: Tensor
    speed: Tensor
    num_draws: ClassVar[int] = 2

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0."""
        assert uniform is not None
        column, row = (self.goal - (context["observation"] * self.room.reach).round().long()).sign().unbind(1)
        straight = torch.where(column != 0, (3 - column) // 2, torch.where(row != 0, (7 - row) // 2, 0))
        done = torch.div(context["time"], self.room.attempt, rounding_mode="floor") / max(1, self.room.attempts - 1)
        anything = (uniform[:, 1] * len(MOVES)).long().clamp(max=len(MOVES) - 1)
        return torch.where(uniform[:, 0] < self.speed * done, straight, anything), torch.zeros(len(straight))


def record_dataset(task: RegretTask, agents: int, noise: float, draw: Draw) -> Experience:
    """Returns the histories of a draw."""
    room, own = task.dynamics, Draw(draw.seed, (50,))
    assert isinstance(room, Darkroom)
    goals = np.repeat(room.goals, agents, 0)
    rows = np.arange(len(goals))
    speed = 0.5 + 1.5 * random.uniform(own, 1, rows)
    speed[random.uniform(own, 2, rows) < noise] = 0.0
    actor = Agents(room, torch.from_numpy(goals), torch.from_numpy(speed))
    simulation = Remembered(Placed(room, goals), History(), task.spec.action)
    played = play_episodes(actor, simulation, rows, rows, np.zeros_like(rows), own, room.limit, greedy=False)
    seen = {"observation": played.context["observation"]}
    return replace(played, context=seen, source=torch.full((len(rows),), int(Origin.DATASET)))


def away(experience: Experience) -> Tensor:
    """Returns 1 for every decision that did not lead to the goal."""
    return 1.0 - experience.reward


def darkroom(
    size: int = 9, attempt: int = 15, attempts: int = 8, agents: int = 6, noise: float = 0.5
) -> RegretTask:
    """Returns the task with its dataset."""
    share("darkroom", noise=noise)
    at_least("darkroom", 3, size=size)
    at_least("darkroom", 1, attempt=attempt, attempts=attempts, agents=agents)
    if size % 2 == 0:
        raise AssayError(f"task 'darkroom': size={size} has no middle. Use an odd size, such as {size + 1}")
    name = name_with_dials("darkroom", size=(size, 9), attempt=(attempt, 15), attempts=(attempts, 8),
                           agents=(agents, 6), noise=(noise, 0.5))  # fmt: skip
    room = Darkroom(size // 2, attempt, attempts)
    spec = Spec(Box((-1.0, -1.0), (1.0, 1.0)), Discrete(len(MOVES)), room.limit)
    make, held_out = (partial(ArraySimulation, one) for one in (room, replace(room, split=1)))
    task = RegretTask(name, spec, make, dynamics=room, held_out=held_out, losses=away, scale=float(room.limit),
                      num_held_out=AT_ONCE, sampled=True)  # fmt: skip
    return replace(task, logged=partial(record_dataset, task, agents, noise))
