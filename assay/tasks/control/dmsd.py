"""DMSD: two masses between two walls, joined by three springs and dampers, pushed to two targets.

NeoRL-2's double mass-spring-damper (arXiv:2503.19267), by Char et al. (arXiv:2307.05891), from its equations: damping
d = 4 and stiffness k = 2 of all three, masses m = 20, force F = 30 a, a in [-1, 1]^2, steps of 0.2 s.

    v1 <- v1 + 0.2 / m (-2k x1 + k x2 - 2d v1 + d v2 + F1), v2 with 1 and 2 exchanged;   x <- x + 0.2 v before
    reward = sum_i -log(|x_i - target_i| + 0.01)

Observed are positions, velocities and targets. Each target may change once, after 50 of the 100 decisions, by chance;
an episode has no end of its own.

Axes: N instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

STIFFNESS, DAMPING, FORCE, SECONDS = 2.0, 4.0, 30.0, 0.2
REACH, SHIFT, SPEED = 1.5, 0.25, 0.1
"""Targets, first positions and first velocities are up to these on both sides of 0."""
HORIZON = 100
SPRINGS = np.array([[-2.0, 1.0], [1.0, -2.0]])
"""How the position (or velocity) of each mass acts on each, per stiffness (or damping)."""


@dataclass(frozen=True)
class MassSpringDamper:
    """Rows of a state: positions, velocities, both first targets, both later ones, the time."""

    mass: float = 20.0
    num_start_draws: ClassVar[int] = 10
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws positions, velocities and targets; a later target differs from the first one in half of the cases."""
        drawn = 2.0 * uniform - 1.0
        first = REACH * drawn[4:6]
        later = np.where(uniform[8:] < 0.5, first, REACH * drawn[6:8])
        return np.concatenate([SHIFT * drawn[:2], SPEED * drawn[2:4], first, later, np.zeros_like(drawn[:1])])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one Euler step; the reward is of the position and the target after it."""
        place, speed, moved = state[:2], state[2:4], state.copy()
        push = FORCE * action.T.astype(np.float64).clip(-1.0, 1.0)
        moved[:2] = place + SECONDS * speed
        moved[2:4] = speed + SECONDS / self.mass * (SPRINGS @ (STIFFNESS * place + DAMPING * speed) + push)
        moved[8] += 1
        reward = -np.log(np.abs(moved[:2] - targets(moved)) + 0.01).sum(0)
        return moved, reward.astype(np.float32), np.zeros(len(reward), dtype=bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns positions, velocities and the targets of now, float32."""
        seen = np.concatenate([state[:4], targets(state)])
        return {"observation": torch.from_numpy(seen.T.astype(np.float32))}


def targets(state: np.ndarray) -> np.ndarray:
    """Returns the targets of now, [2, N]."""
    return np.where(state[8] < HORIZON // 2, state[4:6], state[6:8])


def damped(context: Context, kp: float = 5.0, kd: float = 3.0, hold: float = 1.0) -> Tensor:
    """Pushes by the errors and the velocities, and holds against `hold` of the springs' force at the targets.

    With hold 0 it is PD control, whose masses rest where its push and the springs' are equal: short of the target.
    """
    place, speed, target = context["observation"].split(2, 1)
    springs = target @ torch.from_numpy(SPRINGS).to(target) * (STIFFNESS / FORCE)
    return (kp * (target - place) - kd * speed - hold * springs).clamp(-1.0, 1.0)


def pid(context: Context, kp: float = 3.0, kd: float = 6.0) -> Tensor:
    """Pushes by the errors and the velocities alone: PID control without memory, whose integral is 0."""
    return damped(context, kp, kd, hold=0.0)


def dmsd(mass: float = 20.0) -> SteppedTask:
    """Returns the task; NeoRL-2 tests with a mass of 30, too, what was learned with 20."""
    if not mass > 0.0:
        raise AssayError(f"task 'dmsd': mass={mass:g} is no mass. Use mass=20 or another number above 0")
    dynamics, name = MassSpringDamper(mass), "dmsd" if mass == 20.0 else f"dmsd:mass={mass:g}"
    anything = (float("inf"),) * 6
    spec = Spec(Box(tuple(-one for one in anything), anything), Box((-1.0, -1.0), (1.0, 1.0)), HORIZON)
    return SteppedTask(name, spec, partial(ArraySimulation, dynamics), damped, dynamics)


LEVELS = {"dmsd": dmsd}
