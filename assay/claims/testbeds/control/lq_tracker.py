"""A linear-quadratic tracker: push point masses onto their targets; the optimum is Riccati's.

Axes: N instances, d = 2 masses with position error and velocity each, B episodes, T decisions.

    x' = F x + G u + noise w,   reward = -(x' Q x + price u' u),   u = 1.3 action,   x0 uniform

Loss of a decision under discount g, exact whatever the noise, with P the solution of the Riccati equation:

    V*(x) - Q*(x, u) = (u - K x)' M (u - K x),   M = price I + g G' P G,   K = -g M^-1 G' P F

The score weighs decision t by g^t. Without control the error grows by a tenth at each step. With `price` (the action
cost) from 1 on, the optimal control stays inside the bounds from every start, and nearly always with `noise` up to
0.2; more is refused. `horizon` is the length of an episode, which is truncated; `discount` is that of the score: a
method with a lower one of its own is myopic here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import RegretTask, at_least, named, share
from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.spaces import Box, Context, Spec
from assay.ops.random import GOLDEN, mix
from assay.tasks.control.stepping import ArraySimulation, as_uniform

MASSES = 2
POWER = 1.3
NOISE = 0.2
"""The largest noise at which the optimal control stays inside the bounds in 99.7 % of the score."""
REACH = 0.5
"""Starting errors of position and velocity are up to this."""
F = np.kron(np.eye(MASSES), np.array([[1.1, 0.2], [0.0, 0.7]]))
G = np.kron(np.eye(MASSES), np.array([[0.0], [0.3]]))
Q = np.kron(np.eye(MASSES), np.diag([1.0, 0.1]))


@dataclass(frozen=True)
class Tracker:
    """Rows of a state: position error and velocity of each mass."""

    limit: int
    noise: float
    price: float
    discount: float
    num_start_draws: ClassVar[int] = 2 * MASSES

    @property
    def has_chance(self) -> bool:
        """Returns whether a step reads a uniform number."""
        return self.noise > 0

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws errors and velocities evenly."""
        return REACH * (2.0 * uniform - 1.0)

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step; the reward is of the state before it."""
        push = POWER * action.reshape(-1, MASSES).T.astype(np.float64).clip(-1.0, 1.0)
        cost = (state * (Q @ state)).sum(0) + self.price * np.square(push).sum(0)
        moved = F @ state + G @ push
        if uniform is not None:
            moved = moved + self.noise * normals(uniform, len(state))
        return moved, -cost.astype(np.float32), np.zeros(state.shape[1], bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns the state, float32."""
        return {"observation": torch.from_numpy(state.T.astype(np.float32, order="C"))}

    @cached_property
    def riccati(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (P, K, M) by iterating the discounted Riccati equation to its fixed point."""
        value = Q
        for _ in range(100_000):
            weight = self.price * np.eye(MASSES) + self.discount * G.T @ value @ G
            gain = -self.discount * np.linalg.solve(weight, G.T @ value @ F)
            closed = F + G @ gain
            after = Q + self.price * gain.T @ gain + self.discount * closed.T @ value @ closed
            if np.abs(after - value).max() <= 1e-13 * np.abs(after).max():
                return after, gain, weight
            value = after
        raise AssayError("the Riccati iteration does not converge. Use discount below 1 or a larger price")

    def losses(self, experience: Experience) -> Tensor:
        """Returns discount^t (u - K x)' M (u - K x), [B, T]."""
        _, gain, weight = (torch.from_numpy(array) for array in self.riccati)
        push = POWER * experience.action.double().clamp(-1.0, 1.0)
        off = push - experience.context["observation"].double() @ gain.T
        fading = self.discount ** torch.arange(experience.num_columns, dtype=torch.float64)
        return ((off @ weight * off).sum(-1) * fading).float()

    def best(self, context: Context) -> Tensor:
        """Returns the action of K x."""
        gain = torch.from_numpy(self.riccati[1]).float()
        return (context["observation"] @ gain.T / POWER).clamp(-1.0, 1.0)

    @property
    def scale(self) -> float:
        """Returns the regret of uniform actions, from the recursion of the second moments of the state."""
        _, gain, weight = self.riccati
        spread, total, push = np.eye(2 * MASSES) * REACH**2 / 3.0, 0.0, np.eye(MASSES) * POWER**2 / 3.0
        for time in range(self.limit):
            off = push + gain @ spread @ gain.T
            total += self.discount**time * float(np.trace(weight @ off))
            spread = F @ spread @ F.T + G @ push @ G.T + self.noise**2 * np.eye(2 * MASSES)
        return total


def normals(uniform: np.ndarray, num: int) -> np.ndarray:
    """Returns [num, N] independent standard normal numbers, hashed from one uniform number for each instance."""
    words = (uniform * 2.0**52).astype(np.uint64)
    with np.errstate(over="ignore"):
        many = mix(mix(words + GOLDEN) ^ mix(np.arange(num, dtype=np.uint64)[:, None] + GOLDEN))
    numbers: np.ndarray = torch.special.ndtri(torch.from_numpy(as_uniform(many))).numpy()
    return numbers


def lq_tracker(horizon: int = 20, noise: float = 0.0, price: float = 1.0, discount: float = 0.95) -> RegretTask:
    """Returns the task."""
    at_least("lq-tracker", 1, horizon=horizon, price=price)
    at_least("lq-tracker", 0, noise=noise)
    share("lq-tracker", discount=discount)
    if noise > NOISE:
        raise AssayError(
            f"task 'lq-tracker': noise={noise:g} needs more than the largest action. Use noise up to {NOISE:g}"
        )
    name = named("lq-tracker", horizon=(horizon, 20), noise=(noise, 0.0), price=(price, 1.0), discount=(discount, 0.95))
    dynamics = Tracker(horizon, noise, price, discount)
    spec = Spec(Box((-3.0,) * 2 * MASSES, (3.0,) * 2 * MASSES), Box((-1.0,) * MASSES, (1.0,) * MASSES), horizon)
    make = partial(ArraySimulation, dynamics)
    return RegretTask(name, spec, make, dynamics.best, dynamics, losses=dynamics.losses, scale=dynamics.scale)
