"""A gamble: a return says more about luck than about the choice, since the behaviour mostly chose badly.

In each round the first choice wins with chance 1 - luck, the second with chance `luck`; a round that was won pays 1 in
the state after it, where the next action decides nothing. The recorded behaviour takes the first choice with chance
`luck` alone. So P(first | won) = (1 - luck) luck / (2 luck (1 - luck)) = 1/2: who copies what was done where it was
won chooses like a coin, whatever `luck` is. With luck 0 a win names the choice. Policies are played with their samples:
the mode of a coin would be decided by rounding.

Axes: N instances, S states, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.finite import Finite, states_of
from assay.claims.testbeds.control.regret import RegretTask, at_least, name_with_dials, share
from assay.core.record import Draw, Experience, Origin
from assay.core.spaces import Context
from assay.ops import random
from assay.tasks.control.stepping import ArraySimulation

PARTS = 20
"""Equally likely successors of a choice: chances are multiples of 1/20."""


def wheel(luck: float, rounds: int) -> Finite:
    """Returns the arrays: of each round the state of its choice, then those where it was won and lost."""
    first = 3 * np.arange(rounds)
    lucky = np.arange(PARTS) < round(luck * PARTS)
    successors = np.zeros((3 * rounds, 2, PARTS), np.int64)
    successors[first, 0] = first[:, None] + np.where(lucky, 2, 1)
    successors[first, 1] = first[:, None] + np.where(lucky, 1, 2)
    for after in (1, 2):
        successors[first + after] = (first + 3)[:, None, None]
    reward = np.zeros((3 * rounds, 2))
    reward[first + 1] = 1.0
    return Finite(successors, reward, 1, 2 * rounds + 1)


@dataclass(frozen=True)
class Unlikely:
    """Takes the first choice with chance `luck`, and any action where none decides."""

    luck: float
    num_draws: ClassVar[int] = 1

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0."""
        assert uniform is not None
        chance = torch.where(states_of(context) % 3 == 0, self.luck, 0.5)
        return (uniform[:, 0] >= chance).long(), torch.zeros(len(uniform))


def record_dataset(task: RegretTask, luck: float, episodes: int, draw: Draw) -> Experience:
    """Returns the dataset of a draw."""
    own, rows = Draw(draw.seed, (48,)), np.arange(episodes)
    starts = random.integers(own.at(1), 2**40, episodes)
    played = task.play(Unlikely(luck), starts, np.zeros_like(rows), own, split=0, greedy=False)
    return replace(played, source=torch.full((episodes,), int(Origin.DATASET)))


def gamble(luck: float = 0.1, rounds: int = 1, episodes: int = 1_000) -> RegretTask:
    """Returns the task with its dataset."""
    share("gamble", luck=luck)
    at_least("gamble", 1, rounds=rounds, episodes=episodes)
    name = name_with_dials("gamble", luck=(luck, 0.1), rounds=(rounds, 1), episodes=(episodes, 1_000))
    finite = wheel(luck, rounds)
    make = partial(ArraySimulation, finite)
    made = partial(RegretTask, name, finite.spec, make, finite.best, finite, losses=finite.losses, sampled=True)
    task = made(scale=finite.scale)
    return replace(task, logged=partial(record_dataset, task, luck, episodes))
