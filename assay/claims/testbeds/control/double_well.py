"""A double well: in every state two opposite actions are optimal, and their mean is not.

Axes: N instances, B episodes, T decisions.

    wells +-w(phi) = +-separation (cos(phi / 2), sin(phi / 2)),   reward = -min(|a - w|^2, |a + w|^2)
    phi <- phi + 0.3 + 0.5 a_x,   observation (cos phi, sin phi),   a in [-1, 1]^2

An optimal action exists everywhere, so V* = 0 and what a decision loses is minus its reward, whatever comes after. Once
around the circle the wells have changed places: no continuous function of the state stays in a well, and the
likeliest Gaussian for a demonstrator who takes either well is centred between them, where it loses separation^2. The
dataset is `episodes` such episodes, another one for each seed. Policies are evaluated with their samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import RegretTask, at_least, named, share
from assay.core.record import Draw, Experience, Origin
from assay.core.spaces import Box, Context, Spec
from assay.ops import random
from assay.tasks.control.stepping import ArraySimulation

HORIZON, DRIFT, STEER = 10, 0.3, 0.5
NODES = 64


@dataclass(frozen=True)
class DoubleWell:
    """A state is the angle phi in [0, 2 pi)."""

    separation: float
    num_start_draws: ClassVar[int] = 1
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws any angle."""
        angle: np.ndarray = 2.0 * math.pi * uniform[0]
        return angle

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step."""
        push = action.reshape(-1, 2).astype(np.float64).clip(-1.0, 1.0)
        lost = self.lost(torch.from_numpy(state), torch.from_numpy(push)).numpy()
        moved = (state + DRIFT + STEER * push[:, 0]) % (2.0 * math.pi)
        return moved, -lost.astype(np.float32), np.zeros(len(state), bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns cosine and sine of the angle, float32."""
        seen = np.stack([np.cos(state), np.sin(state)], 1).astype(np.float32)
        return {"observation": torch.from_numpy(seen)}

    def well(self, angle: Tensor) -> Tensor:
        """Returns w(phi), [..., 2]; the other well is -w."""
        return self.separation * torch.stack((torch.cos(angle / 2.0), torch.sin(angle / 2.0)), -1)

    def lost(self, angle: Tensor, push: Tensor) -> Tensor:
        """Returns the squared distance to the nearer well."""
        well = self.well(angle)
        return torch.minimum((push - well).square().sum(-1), (push + well).square().sum(-1))

    def losses(self, experience: Experience) -> Tensor:
        """Returns what each decision loses, [B, T]."""
        push = experience.action.double().clamp(-1.0, 1.0)
        return self.lost(angle_of(experience.context), push).float()

    def best(self, context: Context) -> Tensor:
        """Returns one of the two wells."""
        return self.well(angle_of(context)).float()

    @property
    def scale(self) -> float:
        """Returns the loss of an episode of uniform actions, by midpoint quadrature over action and angle: uniform
        actions keep a uniform angle uniform.
        """
        places = (torch.arange(NODES, dtype=torch.float64) + 0.5) / NODES
        action = torch.cartesian_prod(2.0 * places - 1.0, 2.0 * places - 1.0)
        return HORIZON * float(self.lost(2.0 * math.pi * places[:, None], action).mean())


def angle_of(context: Context) -> Tensor:
    """Returns phi in [0, 2 pi), float64."""
    cosine, sine = context["observation"].double().unbind(-1)
    return torch.atan2(sine, cosine) % (2.0 * math.pi)


@dataclass(frozen=True)
class EitherWell:
    """A demonstrator who takes either well, evenly, with uniform errors up to `error` in each direction."""

    dynamics: DoubleWell
    error: float
    num_draws: ClassVar[int] = 3

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0."""
        assert uniform is not None
        side = torch.where(uniform[:, :1] < 0.5, -1.0, 1.0)
        action = side * self.dynamics.best(context) + self.error * (2.0 * uniform[:, 1:] - 1.0)
        return action.clamp(-1.0, 1.0), torch.zeros(len(action))


def recorded(task: RegretTask, actor: EitherWell, episodes: int, draw: Draw) -> Experience:
    """Returns the dataset of a draw."""
    own = Draw(draw.seed, (45,))
    starts = random.integers(own, 2**40, episodes)
    played = task.play(actor, starts, np.zeros_like(starts), own, split=0, greedy=False)
    return replace(played, source=torch.full((episodes,), int(Origin.DATASET)))


def double_well(separation: float = 0.8, error: float = 0.1, episodes: int = 100) -> RegretTask:
    """Returns the task with its dataset."""
    share("double-well", separation=separation, error=error)
    at_least("double-well", 1, episodes=episodes)
    name = named("double-well", separation=(separation, 0.8), error=(error, 0.1), episodes=(episodes, 100))
    dynamics, unit = DoubleWell(separation), Box((-1.0,) * 2, (1.0,) * 2)
    task = RegretTask(
        name,
        Spec(unit, unit, HORIZON),
        partial(ArraySimulation, dynamics),
        dynamics.best,
        dynamics,
        losses=dynamics.losses,
        scale=dynamics.scale,
        sampled=True,
    )
    return replace(task, logged=partial(recorded, task, EitherWell(dynamics, error), episodes))
