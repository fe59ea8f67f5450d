"""A logged tree: an offline dataset per seed whose coverage, corruption and need for stitching are settings.

D layers of W states; an action leads to a state of the next layer, where branches meet again, and pays between 0 and
20. The dataset is `episodes` episodes of a behaviour policy:

    coverage     probability of the optimal action at a decision; otherwise any other action
    stitching    k > 1: only one of k equal parts of each episode is played like that, in the others the optimal action
                 is never taken. The data then contain all good pieces, but in no episode all of them
    corruption   share of the recorded rewards that are replaced by a number between -200 and 200

A random potential hides the values from immediate rewards.

Axes: N instances, S states, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.finite import Finite, shaped, states_of
from assay.claims.testbeds.control.regret import RegretTask, at_least, name_with_dials, share
from assay.core.record import Draw, Experience, Origin
from assay.core.spaces import Context
from assay.ops import random
from assay.tasks.control.stepping import ArraySimulation

DEPTH, WIDTH, ACTIONS = 4, 4, 3
PAY, OUTLIER = 20.0, 200.0


def tree(instance: int) -> Finite:
    """Returns the arrays of an instance."""
    draw, num_states = Draw(instance, (42,)), DEPTH * WIDTH
    place = np.arange(num_states * ACTIONS).reshape(num_states, ACTIONS)
    layer = np.arange(num_states)[:, None] // WIDTH
    there = (layer + 1) * WIDTH + (random.uniform(draw, 0, place) * WIDTH).astype(np.int64)
    successors = np.minimum(there, num_states)[..., None]
    potential = 2.0 * PAY * (2.0 * random.uniform(draw, 2, np.arange(num_states)) - 1.0)
    return shaped(Finite(successors, PAY * random.uniform(draw, 1, place), WIDTH, DEPTH + 1), potential)


@dataclass(frozen=True)
class Behaviour:
    """Takes the optimal action with probability `coverage` in the layers from `first` to `last` of each row, and never
    elsewhere.
    """

    best: Tensor
    coverage: float
    first: Tensor
    last: Tensor
    num_draws: ClassVar[int] = 2

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0."""
        assert uniform is not None
        state = states_of(context)
        layer = torch.div(state, WIDTH, rounding_mode="floor")
        good = (uniform[:, 0] < self.coverage) & (layer >= self.first) & (layer < self.last)
        away = 1 + (uniform[:, 1] * (ACTIONS - 1)).long().clamp(max=ACTIONS - 2)
        best = self.best[state]
        return torch.where(good, best, (best + away) % ACTIONS), torch.zeros(len(state))


def record_dataset(
    task: RegretTask, coverage: float, corruption: float, stitching: int, episodes: int, draw: Draw
) -> Experience:
    """Returns the dataset of a draw."""
    own, rows = Draw(draw.seed, (43,)), np.arange(episodes)
    part = (random.uniform(own, 0, rows) * stitching).astype(np.int64)
    bounds = torch.from_numpy(np.stack([part, part + 1]) * DEPTH // stitching)
    assert isinstance(task.dynamics, Finite)
    actor = Behaviour(torch.from_numpy(task.dynamics.best_action), coverage, bounds[0], bounds[1])
    starts = random.integers(own.at(1), 2**40, episodes)
    played = task.play(actor, starts, np.zeros_like(rows), own, split=0, greedy=False)
    where = rows[:, None], np.arange(played.num_columns)
    wrong = torch.from_numpy(random.uniform(own, 2, *where) < corruption) & played.mask
    anything = torch.from_numpy(OUTLIER * (2.0 * random.uniform(own, 3, *where) - 1.0)).float()
    reward = torch.where(wrong, anything, played.reward)
    return replace(played, reward=reward, source=torch.full((episodes,), int(Origin.DATASET)))


def logged_tree(
    coverage: float = 0.5, corruption: float = 0.0, stitching: int = 1, episodes: int = 100, instance: int = 0
) -> RegretTask:
    """Returns the task with its dataset; `instance` numbers independent trees."""
    share("logged-tree", coverage=coverage, corruption=corruption)
    at_least("logged-tree", 1, stitching=stitching, episodes=episodes)
    name = name_with_dials(
        "logged-tree",
        coverage=(coverage, 0.5),
        corruption=(corruption, 0.0),
        stitching=(stitching, 1),
        episodes=(episodes, 100),
        instance=(instance, 0),
    )
    finite = tree(instance)
    make = partial(ArraySimulation, finite)
    task = RegretTask(name, finite.spec, make, finite.best, finite, losses=finite.losses, scale=finite.scale)
    return replace(task, logged=partial(record_dataset, task, coverage, corruption, stitching, episodes))
