"""One goal: a point in a maze is paid for every decision at one place, which nothing shows; logs of three provenances.

Moves are those of `pointmaze`; the goal is the same in every episode and not observed, as in D4RL's maze2d
(arXiv:2004.07219), and being there does not end the episode.

    one-goal-scripted    a script goes to the goal, always from the far end: narrow, nearly without noise
    one-goal-play        a script goes from place to place, without any task: paths to the goal are in pieces
    one-goal-noisy       the script with 30 to 100 % of its actions uniform, another share in each episode

Each log has 4,800 decisions and the rewards of the task itself; those of play are relabelled: 1 where a decision leads
to the goal, as the task pays in the same states. The score is 0 for uniform actions and 100 for the script.

Axes: N instances, B episodes, T decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience, Origin, concatenate
from assay.core.spaces import Box, Context, Spec
from assay.ops import random
from assay.tasks.control.benchmark import Behaviour, Benchmark, benchmark
from assay.tasks.control.mazes import Maze
from assay.tasks.control.pointmaze import (
    ASIDE,
    RADIUS,
    TOP_SPEED,
    UMAZE,
    PointMaze,
    middle,
    point_task,
    scaled,
    steered,
)
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

GOAL = 4
"""The number of the goal's cell, at one end of the U; cell 0 is at the other."""
HORIZON, EPISODES, WALKS = 80, 60, 24
"""Decisions of an episode, episodes of a log, and walks of play, which have 200 decisions."""
REFERENCE = (1.84, 64.95)
"""Mean returns over held-out episodes: of uniform actions over 500, of the script over the 20 of an evaluation."""


@dataclass(frozen=True)
class OneGoal:
    """Rows of a state: x, y, velocity in x and y, and the goal's x and y, as in `PointMaze`. `far` starts every episode
    in the cell that is farthest from the goal.
    """

    maze: Maze = UMAZE
    far: bool = False
    num_start_draws: ClassVar[int] = 3
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Starts at rest in any cell but the goal's, or in the far one, number 0."""
        cell = (uniform[0] * (len(self.maze.cells) - 1)).astype(np.int64) * (not self.far)
        place = middle(self.maze, cell + (cell >= GOAL)) + ASIDE * (uniform[1:] - 0.5)
        there = np.broadcast_to(middle(self.maze, np.array([GOAL])), place.shape)
        return np.concatenate([place, np.zeros_like(place), there])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one push; reward 1 at the goal, where the episode goes on."""
        moved, reward, terminal = PointMaze(self.maze, 0, HORIZON).step(state, action, None)
        return moved, reward, np.zeros_like(terminal)

    def observe(self, state: np.ndarray) -> Context:
        """Returns position and velocity, in the units of the point mazes."""
        seen = np.concatenate([scaled(self.maze, state[:2]), state[2:4] / TOP_SPEED])
        return {"observation": torch.from_numpy(seen.T.astype(np.float32))}


def place_of(maze: Maze) -> Tensor:
    """Returns the goal in the units of observations, [2]."""
    return torch.from_numpy(scaled(maze, middle(maze, np.array([GOAL])))[:, 0].astype(np.float32))


def to_goal(maze: Maze, context: Context) -> Tensor:
    """Returns the script's force: along the shortest path to the goal, and to its middle inside its cell."""
    goal = place_of(maze).expand(len(context["observation"]), 2)
    return steered(maze, {**context, "goal": goal})


def paid(maze: Maze, observation: Tensor) -> Tensor:
    """Returns what the task pays for being where an observation [..., 4] says, 0 or 1.

    In float32 observations a point within a millionth of the goal's edge may be on its other side.
    """
    away = (observation[..., :2] - place_of(maze)).double().norm(dim=-1) * max(maze.free.shape) / 2.0
    return (away <= RADIUS).float()


def relabelled(maze: Maze, played: Experience) -> Experience:
    """Returns episodes of a goal-conditioned maze as this task's: without goals, with its rewards, cut at their end."""
    seen = played.context["observation"]
    reward = torch.cat((paid(maze, seen[:, 1:]), torch.zeros(len(seen), 1)), 1) * played.mask
    last = played.mask & ~torch.nn.functional.pad(played.mask[:, 1:], (0, 1))
    never = torch.zeros_like(played.terminal)
    return replace(played, context={"observation": seen}, reward=reward, terminal=never, truncated=last)


# ---------------------------------------------------------------------------------------------------- logs
def logged(task: SteppedTask, actor: Behaviour, episodes: int, draw: Draw) -> Experience:
    """Returns episodes of an actor from training starts of this draw."""
    starts = random.integers(draw.at(1), 2**40, episodes)
    return task.play(actor, starts, np.zeros(episodes, np.int64), draw, split=0, greedy=False)


def shared(noise: float) -> Behaviour:
    """Returns the script with a share of uniform actions."""
    return Behaviour(partial(to_goal, UMAZE), one_goal().spec.action, noise)


def scripted(draw: Draw) -> Experience:
    """Returns episodes of the script from the far end, a twentieth of whose actions is uniform."""
    return logged(one_goal(far=True), shared(0.05), EPISODES, draw)


def noisy(draw: Draw) -> Experience:
    """Returns episodes of the script with another share of uniform actions in each, from 30 to 100 %."""
    shares = np.linspace(0.3, 1.0, 6)
    each = EPISODES // len(shares)
    return concatenate([logged(one_goal(), shared(float(share)), each, draw.at(at)) for at, share in enumerate(shares)])


def play(draw: Draw) -> Experience:
    """Returns walks from place to place, three tenths of whose actions are uniform, with this task's rewards."""
    roaming = point_task("pointmaze-umaze", UMAZE, HORIZON).roaming
    assert roaming is not None
    assert roaming.expert is not None
    return relabelled(UMAZE, logged(roaming, Behaviour(roaming.expert, roaming.spec.action, 0.3), WALKS, draw))


LOGS: Mapping[str, Callable[[Draw], Experience]] = {"scripted": scripted, "play": play, "noisy": noisy}


def of_origin(name: str, draw: Draw) -> Experience:
    """Returns the log of a provenance for a draw."""
    found = LOGS[name](Draw(draw.seed, (63,)))
    return replace(found, source=torch.full((len(found),), int(Origin.DATASET)))


# ---------------------------------------------------------------------------------------------------- tasks
def one_goal(far: bool = False) -> SteppedTask:
    """Returns the task, scored by its return; its script knows where the goal is. `far` starts at the other end."""
    dynamics, four = OneGoal(far=far), (1.0,) * 4
    spec = Spec(Box((-1.0,) * 4, four), Box((-1.0, -1.0), (1.0, 1.0)), HORIZON)
    make = partial(ArraySimulation, dynamics)
    return SteppedTask("one-goal", spec, make, partial(to_goal, UMAZE), dynamics)


def with_log(origin: str) -> Benchmark:
    """Returns the task with a log of this provenance, one for each seed of a run."""
    return benchmark(one_goal(), f"one-goal-{origin}", REFERENCE, partial(of_origin, origin))


LEVELS = {
    "one-goal": partial(one_goal, False),
    "one-goal-scripted": partial(with_log, "scripted"),
    "one-goal-play": partial(with_log, "play"),
    "one-goal-noisy": partial(with_log, "noisy"),
}
