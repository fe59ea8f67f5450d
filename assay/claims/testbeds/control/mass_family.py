"""A family of masses: one unknown mass for an episode, and the linear controller that is best in the worst case.

Axes: B episodes, T decisions, R masses.

    position' = position + 0.3 velocity,   velocity' = 0.9 velocity + 0.6 action / mass,   action in [-4, 4]
    reward = -(position^2 + 0.1 velocity^2 + 0.1 action^2)

Masses are log-spaced from 1 / spread to spread, the nominal one is 1. Linear feedback has an exact mean cost under each
mass, a sum over the second moments of the state; the robust optimum is the feedback whose worst one is least, found on
a grid that is refined around its best point. The score of an episode is its return, 0 for no action at all (uniform
actions push light masses arbitrarily far, which would hide every difference) and 1 for the robust optimum, each in its
own worst mass. So `evaluation_worst`, the mean score under the worst mass, is at most about 1. (Only a nonlinear
controller could exceed it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import RegretTask, at_least, named
from assay.core.record import Experience
from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.stepping import ArraySimulation, SteppedTask
from assay.tasks.tabular.uncertain import Regime, Uncertain

HORIZON, NUM_MASSES, POWER = 25, 5, 4.0
PRICES = np.array([1.0, 0.1, 0.1])
"""Weights of squared position, velocity and action."""
START = np.diag([1.0, 0.25]) / 3.0
"""Second moments of the start: position in [-1, 1], velocity in [-0.5, 0.5]."""


def transition(mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns F and G of x' = F x + G action."""
    return np.array([[1.0, 0.3], [0.0, 0.9]]), np.array([[0.0], [0.6 / mass]])


@dataclass(frozen=True)
class Masses:
    """Rows of a state: position, velocity, and the mass, which is not seen."""

    masses: tuple[Regime, ...]
    num_start_draws: ClassVar[int] = 3
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws position, velocity and one of the masses."""
        mass = np.asarray(self.masses)[(uniform[2] * len(self.masses)).astype(np.int64), 0]
        return np.stack([2.0 * uniform[0] - 1.0, uniform[1] - 0.5, mass])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step; the reward is of the state before it."""
        position, velocity, mass = state
        push = action.reshape(-1).astype(np.float64).clip(-POWER, POWER)
        cost = PRICES @ np.square(np.stack([position, velocity, push]))
        moved = np.stack([position + 0.3 * velocity, 0.9 * velocity + 0.6 * push / mass, mass])
        return moved, -cost.astype(np.float32), np.zeros(len(mass), bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns position and velocity, float32."""
        return {"observation": torch.from_numpy(state[:2].T.astype(np.float32, order="C"))}


def costs(gains: np.ndarray, mass: float) -> np.ndarray:
    """Returns the mean cost [n] of an episode under feedback action = gains [n, 2] x."""
    forward, input_ = transition(mass)
    closed = forward + input_ * gains[:, None, :]
    spread, total = np.broadcast_to(START, closed.shape), np.zeros(len(gains))
    for _ in range(HORIZON):
        action = np.einsum("ni,nij,nj->n", gains, spread, gains)
        total = total + PRICES[0] * spread[:, 0, 0] + PRICES[1] * spread[:, 1, 1] + PRICES[2] * action
        spread = closed @ spread @ closed.transpose(0, 2, 1)
    return total


def masses_of(spread: float) -> tuple[Regime, ...]:
    """Returns the masses, the nominal one first."""
    every = spread ** np.linspace(-1.0, 1.0, NUM_MASSES)
    return ((1.0,), *((float(mass),) for mass in every if abs(mass - 1.0) > 1e-9))


def worst(gains: np.ndarray, spread: float) -> np.ndarray:
    """Returns the cost [n] under the worst mass for each feedback."""
    found: np.ndarray = np.max([costs(gains, mass) for (mass,) in masses_of(spread)], 0)
    return found


def robust_gain(spread: float) -> tuple[float, float]:
    """Returns the feedback (position, velocity) whose worst cost is least, to 1e-4, within actions that stay small."""
    centre, width = np.array([-1.0, -1.0]), 1.0
    for _ in range(20):
        offsets = np.linspace(-width, width, 9)
        gains = centre + np.stack(np.meshgrid(offsets, offsets, indexing="ij"), -1).reshape(-1, 2)
        gains = gains[(gains <= 0).all(1)]
        with np.errstate(over="ignore", invalid="ignore"):
            centre = gains[np.nan_to_num(worst(gains, spread), nan=np.inf).argmin()]
        width *= 0.6
    return float(centre[0]), float(centre[1])


def pushed(gain: tuple[float, float], context: Context) -> Tensor:
    """Returns the action of linear feedback."""
    return (context["observation"] @ torch.tensor(gain)).clamp(-POWER, POWER)[:, None]


def lacking(best: float, experience: Experience) -> Tensor:
    """Returns what each decision's reward lacks, so that the sum over an episode is best - return."""
    first = torch.zeros_like(experience.reward)
    first[:, 0] = best
    return first - experience.reward


def masses_task(spread: float, gain: tuple[float, float], masses: tuple[Regime, ...]) -> SteppedTask:
    """Returns the task whose episodes draw one of these masses; `gain` is the robust feedback."""
    dynamics = Masses(masses)
    spec = Spec(Box((-2.0,) * 2, (2.0,) * 2), Box((-POWER,), (POWER,)), HORIZON)
    best, idle = -worst(np.array([gain, (0.0, 0.0)]), spread)
    name = "masses-" + "-".join(f"{mass:.3g}" for (mass,) in masses)
    make, expert = partial(ArraySimulation, dynamics), partial(pushed, gain)
    losses, scale = partial(lacking, float(best)), float(best - idle)
    return RegretTask(name, spec, make, expert, dynamics, losses=losses, scale=scale)


@dataclass(frozen=True)
class MassFamily(Uncertain):
    """The family, evaluated on 200 starts for each mass."""

    num_held_out: int = 200 * NUM_MASSES


def mass_family(spread: float = 3.0) -> MassFamily:
    """Returns the family; mass 1 in training, all of them held out."""
    at_least("mass-family", 1.01, spread=spread)
    make = partial(masses_task, spread, robust_gain(spread))
    return MassFamily(named("mass-family", spread=(spread, 3.0)), masses_of(spread), make)
