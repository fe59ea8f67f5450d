"""Tasks that a policy without memory cannot solve: a cue that is shown once, and physics without its velocities.

t-maze (Bakker 2001): a cue of 1 or -1 is seen at the start alone; after `LENGTH` decisions in a corridor, where every
action moves on, the next one turns: 0 for the cue -1, 1 for the cue 1, reward 1 if that is right. A policy of the
current observation has 1/2 at best, whatever it does: the corridor looks alike after both cues. Axes: N instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from assay.core.spaces import Box, Context, Discrete, Spec
from assay.tasks.control.arrays import Array, as_float32, as_rows, namespace
from assay.tasks.control.cartpole import HORIZON as UPRIGHT_HORIZON
from assay.tasks.control.cartpole import MAX_ANGLE, MAX_POSITION, CartPole
from assay.tasks.control.pendulum import HORIZON as SWING_HORIZON
from assay.tasks.control.pendulum import MAX_TORQUE, Pendulum
from assay.tasks.control.stepping import ArraySimulation, SteppedTask
from assay.tasks.control.tensor_stepping import TensorSimulation

LENGTH = 10
"""Decisions in the corridor."""


@dataclass(frozen=True)
class TMaze:
    """Rows of a state: cue, place."""

    num_start_draws: ClassVar[int] = 1
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = LENGTH + 1

    def start(self, uniform: Array) -> Array:
        """Either cue, at the start of the corridor."""
        xp = namespace(uniform)
        cue = xp.where(uniform[0] < 0.5, -1.0, 1.0)
        return xp.stack((cue, 0.0 * cue))

    def step(self, state: Array, action: Array, uniform: Array | None) -> tuple[Array, Array, Array]:
        """Moves on; at the end of the corridor it turns, and the episode ends."""
        xp, (cue, place) = namespace(state), state
        turns = place >= LENGTH
        is_right = turns & ((2 * action.reshape(-1) - 1) * cue > 0)
        return xp.stack((cue, place + 1.0)), as_float32(is_right), turns

    def observe(self, state: Array) -> Context:
        """The cue where it is shown, and whether it is time to turn."""
        xp, (cue, place) = namespace(state), state
        return {"observation": as_rows(xp.stack((cue * (place == 0), 1.0 * (place >= LENGTH))))}


def t_maze() -> SteppedTask:
    """The corridor with a cue."""
    spec = Spec(Box((-1.0, 0.0), (1.0, 1.0)), Discrete(2), LENGTH + 1)
    return native("t-maze", spec, TMaze())


@dataclass(frozen=True)
class PositionsOfCartPole(CartPole):
    """CartPole that shows position and angle alone."""

    def observe(self, state: Array) -> Context:
        """Position and angle."""
        return {"observation": as_rows(state[::2])}


@dataclass(frozen=True)
class PositionsOfPendulum(Pendulum):
    """Pendulum that shows its angle alone."""

    def observe(self, state: Array) -> Context:
        """Cosine and sine of the angle."""
        xp = namespace(state)
        return {"observation": as_rows(xp.stack((xp.cos(state[0]), xp.sin(state[0]))))}


def cartpole_positions() -> SteppedTask:
    """CartPole without velocities."""
    bounds = (2 * MAX_POSITION, 2 * MAX_ANGLE)
    spec = Spec(Box(tuple(-bound for bound in bounds), bounds), Discrete(2), UPRIGHT_HORIZON)
    return native("cartpole-positions", spec, PositionsOfCartPole())


def pendulum_positions() -> SteppedTask:
    """Pendulum without its angular velocity."""
    spec = Spec(Box((-1.0, -1.0), (1.0, 1.0)), Box((-MAX_TORQUE,), (MAX_TORQUE,)), SWING_HORIZON)
    return native("pendulum-positions", spec, PositionsOfPendulum())


def native(name: str, spec: Spec, dynamics: TMaze | CartPole | Pendulum) -> SteppedTask:
    """Returns the task of these dynamics, on the CPU or on a device."""
    on_device = partial(TensorSimulation, dynamics)
    return SteppedTask(name, spec, partial(ArraySimulation, dynamics), dynamics=dynamics, on_device=on_device)


LEVELS = {"t-maze": t_maze, "cartpole-positions": cartpole_positions, "pendulum-positions": pendulum_positions}
