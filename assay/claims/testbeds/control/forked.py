"""A fork: one continuous decision with two right actions, of which the recorded expert takes either by chance.

Axes: N instances, B episodes, T = 1 decision.

In a state s, two numbers from -1 to 1, the actions m(s) and -m(s) are right, m(s) = 0.5 + 0.3 sin(3 s_1) s_2. A choice
within 0.15 of a right one pays 1, any other 0. The expert takes one of them with deviation 0.03; `balance` is the
chance of the positive one. Between the two, where their mean lies, nothing is paid: with balance 1/2 a policy of one
mode must choose, and a Gaussian fitted to both covers the middle. With balance 1 there is one mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import RegretTask, at_least, name_with_dials, share
from assay.core.record import Draw, Experience
from assay.core.spaces import Box, Context, Spec
from assay.ops import random
from assay.tasks.control.stepping import ArraySimulation

NEAR, SPREAD = 0.15, 0.03


def right(state: Tensor) -> Tensor:
    """Returns m of states [..., 2]."""
    return 0.5 + 0.3 * (3.0 * state[..., 0]).sin() * state[..., 1]


def pays(state: Tensor, action: Tensor) -> Tensor:
    """Returns 1 where the action [...] is near m or -m, else 0."""
    return ((action.abs() - right(state)).abs() <= NEAR).to(action.dtype)


@dataclass(frozen=True)
class Fork:
    """Rows of a state: its two numbers."""

    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = 1

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws a state evenly."""
        return 2.0 * uniform - 1.0

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pays the decision and ends."""
        taken = torch.from_numpy(np.asarray(action, np.float64).reshape(-1))
        reward = pays(torch.from_numpy(np.asarray(state.T)), taken)
        return state, reward.numpy().astype(np.float32), np.ones(len(taken), bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns the two numbers."""
        return {"observation": torch.from_numpy(state.T.astype(np.float32))}


@dataclass(frozen=True)
class EitherWay:
    """Takes m(s) with chance `balance`, else -m(s), with a little noise."""

    balance: float = 1.0
    num_draws: ClassVar[int] = 2

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions [N, 1] and log-probability 0."""
        state = context["observation"]
        side, noise = torch.ones(len(state)), torch.zeros(len(state))
        if uniform is not None:
            side = torch.where(uniform[:, 0] < self.balance, 1.0, -1.0)
            noise = SPREAD * torch.special.ndtri(uniform[:, 1].double()).float()
        return (side * right(state) + noise).unsqueeze(-1), torch.zeros(len(state))


def losses(experience: Experience) -> Tensor:
    """Returns 1 - what each decision is paid, [B, T]."""
    return 1.0 - pays(experience.context["observation"], experience.action[..., 0])


def chance() -> float:
    """Returns the chance that a uniform action is paid: two intervals of 0.3 in a range of 2."""
    return 2.0 * 2.0 * NEAR / 2.0


def recorded(task: RegretTask, balance: float, episodes: int, draw: Draw) -> Experience:
    """Returns the dataset of a draw."""
    own, rows = Draw(draw.seed, (47,)), np.arange(episodes)
    starts = random.integers(own.at(1), 2**40, episodes)
    return task.play(EitherWay(balance), starts, np.zeros_like(rows), own, split=0, greedy=False)


def forked(balance: float = 0.5, episodes: int = 2_000) -> RegretTask:
    """Returns the task with its dataset."""
    share("forked", balance=balance)
    at_least("forked", 1, episodes=episodes)
    dynamics = Fork()
    name = name_with_dials("forked", balance=(balance, 0.5), episodes=(episodes, 2_000))
    spec = Spec(Box((-1.0,) * 2, (1.0,) * 2), Box((-1.0,), (1.0,)), 1)
    made = partial(RegretTask, name, spec, partial(ArraySimulation, dynamics), None, dynamics, losses=losses,
                   scale=1.0 - chance(), sampled=True)
    return made(logged=partial(recorded, made(), balance, episodes))
