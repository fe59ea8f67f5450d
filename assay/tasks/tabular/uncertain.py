"""Tasks under several regimes of their transitions: one regime holds for a whole episode and is not observed.

CartPole with poles of several half lengths and masses; the rest is as in `cartpole`, and so is the nominal pole. A walk
above a cliff in winds of several strengths; the nominal one is calm.

Axes: R regimes, S states, A actions, N instances.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, concatenate
from assay.core.slots import Simulation
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.tasks.control.cartpole import GRAVITY, HORIZON, MAX_ANGLE, MAX_POSITION, SECONDS, balance
from assay.tasks.control.stepping import ArraySimulation, SteppedTask
from assay.tasks.tabular.table import Table, grid_moves

LIMITS = np.array([[MAX_POSITION], [MAX_ANGLE]])
FORCES = np.array([-10.0, 10.0])
Regime = tuple[float, ...]
POLES: tuple[Regime, ...] = ((0.5, 0.1), (0.5, 1.0), (0.1, 0.1), (0.1, 1.0), (2.0, 0.1), (2.0, 1.0))
"""(half length, mass) of each pole, the nominal one first."""


@dataclass(frozen=True)
class Uncertain:
    """A family of tasks: `make(regimes)` is the one whose episodes draw from these regimes.

    With `bounds`, the least and the largest of each number of a regime, every regime between them is possible, and
    `regimes` are the nominal one and those that an evaluation covers.
    """

    name: str
    regimes: tuple[Regime, ...]
    make: Callable[[tuple[Regime, ...]], SteppedTask]
    bounds: tuple[Regime, Regime] | None = None

    def __post_init__(self) -> None:
        for regime in self.regimes if self.bounds is not None else ():
            low, high = self.bounds or ((), ())
            if not len(low) == len(high) == len(regime) or any(
                not least <= one <= most for least, one, most in zip(low, regime, high, strict=True)
            ):
                what = f"task '{self.name}': regime {regime} is not between its bounds {low} and {high}"
                raise AssayError(f"{what}. Widen the bounds, or drop the regime")

    @cached_property
    def spec(self) -> Spec:
        """Returns the spec, which is the same under every regime."""
        return self.under(self.regimes[0]).spec

    def under(self, regime: Regime) -> SteppedTask:
        """Returns the task in which this regime holds."""
        return self.make((regime,))

    def mixed(self) -> SteppedTask:
        """Returns the task in which every episode draws its regime."""
        return self.make(self.regimes)

    def simulate(self, num: int) -> Simulation:
        """Returns N instances of the nominal regime."""
        return self.under(self.regimes[0]).simulate(num)

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Plays the nominal regime in training; held out, regime `start` modulo their number (column `regime`)."""
        which = starts % len(self.regimes) if split else np.zeros_like(starts)
        parts, rows = [], []
        for regime in np.unique(which):
            rows.append(np.flatnonzero(which == regime))
            task = self.under(self.regimes[regime])
            part = task.play(actor, starts[rows[-1]], samples[rows[-1]], draw, split=split, greedy=greedy)
            parts.append(part.add({"regime": torch.full((len(part),), int(regime))}))
        return concatenate(parts).rows(torch.from_numpy(np.argsort(np.concatenate(rows))))

    def judge(self, experience: Experience, split: int) -> Experience:
        """Delegates to the nominal regime."""
        return self.under(self.regimes[0]).judge(experience, split)

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Delegates to the nominal regime."""
        return self.under(self.regimes[0]).describe(experience, row)


@dataclass(frozen=True)
class VariedCartPole:
    """Rows of a state: position, velocity, angle, angular velocity, and the pole's half length and mass, unseen."""

    poles: tuple[Regime, ...] = POLES
    num_start_draws: ClassVar[int] = 5
    has_chance: ClassVar[bool] = False
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Returns four numbers between -0.05 and 0.05, and a pole."""
        pole = np.asarray(self.poles)[(uniform[4] * len(self.poles)).astype(np.int64)]
        return np.concatenate([0.1 * uniform[:4] - 0.05, pole.T])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns one Euler step."""
        angle, spin, length, mass = state[2], state[3], state[4], state[5]
        sine, cosine, total = np.sin(angle), np.cos(angle), mass + 1.0
        push = (FORCES[action] + mass * length * np.square(spin) * sine) / total
        turning = (GRAVITY * sine - cosine * push) / (length * (4.0 / 3.0 - mass * np.square(cosine) / total))
        moved = state.copy()
        moved[0] += state[1] * SECONDS
        moved[1] += (push - mass * length * turning * cosine / total) * SECONDS
        moved[2] += spin * SECONDS
        moved[3] += turning * SECONDS
        beyond = np.abs(moved[:4:2]) > LIMITS
        return moved, np.ones(len(angle), np.float32), beyond[0] | beyond[1]

    def observe(self, state: np.ndarray) -> Context:
        """Returns the four numbers that move, float32."""
        return {"observation": torch.from_numpy(state[:4].T.astype(np.float32, order="C"))}


def cartpole_with(poles: tuple[Regime, ...]) -> SteppedTask:
    """Returns CartPole whose episodes draw one of these poles evenly."""
    dynamics = VariedCartPole(poles)
    bounds = (2 * MAX_POSITION, math.inf, 2 * MAX_ANGLE, math.inf)
    spec = Spec(Box(tuple(-bound for bound in bounds), bounds), Discrete(2), HORIZON)
    name = "-or-".join(f"{length:g}x{mass:g}" for length, mass in poles)
    return SteppedTask(f"cartpole-{name}", spec, partial(ArraySimulation, dynamics), balance, dynamics)


def uncertain_cartpole() -> Uncertain:
    """Returns CartPole whose pole is half as long as 0.1 to 2 and of mass 0.1 to 1; the nominal one in training, six
    held out.
    """
    return Uncertain("uncertain-cartpole", POLES, cartpole_with, bounds=((0.1, 0.1), (2.0, 1.0)))


# ---------------------------------------------------------------------------------------------------- walk
HEIGHT, WIDTH = 3, 6
WINDS: tuple[Regime, ...] = ((0.0,), (0.05,), (0.1,), (0.15,))
"""The probability that the wind blows, the nominal one first."""


@dataclass(frozen=True)
class OneHotTable:
    """A table whose states are seen as zeros and a one."""

    table: Table

    @property
    def num_start_draws(self) -> int:
        """Delegates to the table."""
        return self.table.num_start_draws

    @property
    def has_chance(self) -> bool:
        """Delegates to the table."""
        return self.table.has_chance

    @property
    def limit(self) -> int:
        """Delegates to the table."""
        return self.table.limit

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Delegates to the table."""
        return self.table.start(uniform)

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Delegates to the table."""
        return self.table.step(state, action, uniform)

    def observe(self, state: np.ndarray) -> Context:
        """Returns [N, S]."""
        return {"observation": torch.nn.functional.one_hot(torch.from_numpy(state), len(self.table.R)).float()}

    def best(self, context: Context) -> Tensor:
        """Returns the table's best action."""
        return self.table.optimal[context["observation"].argmax(-1)]


def windy_table(wind: float | Tensor, height: int = HEIGHT) -> Table:
    """Returns `height` x 6 cells, from the left end of the second lowest row to its right end; up, right, down, left at
    -1 a step.

    With probability `wind`, of all cells or of each [S], a step goes one cell further down. In the lowest row a step
    costs 20 and ends the walk.
    """
    moves, cell = grid_moves(height, WIDTH), np.arange(height * WIDTH)
    first, goal, is_cliff = (height - 2) * WIDTH, (height - 1) * WIDTH - 1, cell >= (height - 1) * WIDTH
    eye = torch.eye(len(cell), dtype=torch.float64)
    still, blown = (
        eye[torch.from_numpy(np.where(is_cliff[:, None], goal, reached))] for reached in (moves, moves[moves, 2])
    )
    reward = torch.from_numpy(np.where(is_cliff, -20.0, -1.0))[:, None].expand(len(cell), 4).contiguous()
    chance = wind[:, None, None] if isinstance(wind, Tensor) else wind
    return Table(torch.lerp(still, blown, chance), reward, eye[goal].bool(), eye[first], 40)


def walk_in(winds: tuple[Regime, ...]) -> SteppedTask:
    """Returns the walk in one wind; with several, the wind is drawn at every step, by their mean."""
    mean = sum(wind for (wind,) in winds) / len(winds)
    dynamics = OneHotTable(windy_table(mean))
    spec = Spec(Box((0.0,) * HEIGHT * WIDTH, (1.0,) * HEIGHT * WIDTH), Discrete(4), 40)
    return SteppedTask(f"walk-in-wind-{mean:g}", spec, partial(ArraySimulation, dynamics), dynamics.best, dynamics)


def windy_walk() -> Uncertain:
    """Returns the walk above a cliff in any wind up to 0.15; calm in training, in four winds held out."""
    return Uncertain("windy-walk", WINDS, walk_in, bounds=(WINDS[0], WINDS[-1]))


LEVELS = {"uncertain-cartpole": uncertain_cartpole, "windy-walk": windy_walk}
