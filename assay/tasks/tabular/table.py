"""Tables: finite MDPs given by their arrays, so that everything about them can be computed exactly.

Axes: S states, A actions, N instances. In state s, action a gives reward R[s, a] and leads to s' with probability
P[s, a, s']; entering a terminal state ends the episode, `horizon` decisions truncate it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Task
from assay.core.spaces import Context, Discrete, Spec
from assay.tasks.control.stepping import ArraySimulation, SteppedTask


@dataclass(frozen=True, eq=False)
class Table:
    """P [S, A, S] and R [S, A] float64, `terminal` [S] bool, `initial` [S] the distribution of the first state."""

    P: Tensor
    R: Tensor
    terminal: Tensor
    initial: Tensor
    horizon: int
    num_start_draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        num_states, num_actions = self.R.shape
        shapes = {"P": (num_states, num_actions, num_states), "terminal": (num_states,), "initial": (num_states,)}
        for name, shape in shapes.items():
            if (found := tuple(getattr(self, name).shape)) != shape:
                raise AssayError(f"Table: {name} has shape {found}, but R {tuple(self.R.shape)} needs {shape}")
        for name, rows in (("P", self.P), ("initial", self.initial)):
            if bool((rows < 0).any()) or not torch.allclose(rows.sum(-1), torch.ones((), dtype=rows.dtype)):
                raise AssayError(f"Table: rows of {name} are not probabilities. Use numbers >= 0 with sum 1")
        if bool(self.initial[self.terminal].any()):
            raise AssayError("Table: initial gives a terminal state positive probability. Start in other states")

    @property
    def limit(self) -> int:
        """Returns decisions after which an episode is truncated."""
        return self.horizon

    @cached_property
    def has_chance(self) -> bool:
        """Returns whether some transition is random."""
        return bool(((self.P > 0) & (self.P < 1)).any())

    @cached_property
    def optimal(self) -> Tensor:
        """Returns the best action of each state by value iteration, discount 0.99; ties go to the lowest number."""
        return action_values(self, discount=0.99).round(decimals=9).argmax(-1)

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws the first states."""
        state: np.ndarray = np.count_nonzero(uniform[0][:, None] >= self._initial_sums, -1)
        return state

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step; samples the next state by the inverse distribution function."""
        if uniform is None:
            moved = self._successors[state, action]
        else:
            moved = np.count_nonzero(uniform[:, None] >= self._sums[state, action], -1)
        return moved, self._rewards[state, action], self._terminal[moved]

    def observe(self, state: np.ndarray) -> Context:
        """Returns the number of the state."""
        return {"state": torch.from_numpy(state.copy())}

    def best(self, context: Context) -> Tensor:
        """Returns the optimal action of each row."""
        return self.optimal[context["state"]]

    @cached_property
    def _initial_sums(self) -> np.ndarray:
        return cumulative(self.initial)

    @cached_property
    def _sums(self) -> np.ndarray:
        return cumulative(self.P)

    @cached_property
    def _successors(self) -> np.ndarray:
        return self.P.argmax(-1).numpy()

    @cached_property
    def _rewards(self) -> np.ndarray:
        return self.R.float().numpy()

    @cached_property
    def _terminal(self) -> np.ndarray:
        return self.terminal.numpy()


def cumulative(probability: Tensor) -> np.ndarray:
    """Returns running sums along the last axis, scaled so that no rounding can select past the last possible entry."""
    sums = probability.double().cumsum(-1)
    return (sums / sums[..., -1:]).numpy()


def action_values(table: Table, discount: float, tolerance: float = 1e-12, num_sweeps: int = 100_000) -> Tensor:
    """Returns Q [S, A] of the optimal policy without a horizon, by value iteration; 0 in terminal states.

    Q(s, a) = R(s, a) + discount sum_s' P(s' | s, a) max_a' Q(s', a')
    """
    goes_on = (~table.terminal).double()
    value = torch.zeros(len(goes_on), dtype=torch.float64)
    for _ in range(num_sweeps):
        q_SA = (table.R.double() + discount * table.P.double() @ value) * goes_on[:, None]
        change = (q_SA.amax(-1) - value).abs().amax()
        value = q_SA.amax(-1)
        if float(change) <= tolerance:
            return q_SA
    raise AssayError(
        f"value iteration with discount={discount} does not converge in {num_sweeps} sweeps. Lower the discount"
    )


def table_of(task: Task) -> Table:
    """Returns the arrays behind a task."""
    if isinstance(task, SteppedTask) and isinstance(task.dynamics, Table):
        return task.dynamics
    raise AssayError(f"task '{task.name}' is not a table. Use chain(), gridworld(), cliff() or tabular(...)")


def tabular(name: str, table: Table) -> SteppedTask:
    """Returns the task of a table."""
    spec = Spec(Discrete(table.R.shape[0]), Discrete(table.R.shape[1]), table.horizon)
    return SteppedTask(name, spec, partial(ArraySimulation, table), table.best, table)


def walk(successors: np.ndarray, reward: Tensor, first: int, goal: int, slip: float, horizon: int) -> Table:
    """Returns a table of moves [S, A] to one goal; with probability `slip` a uniformly random action replaces a move.

    R stays a function of (s, a): under `slip` it is the expected reward.
    """
    if not 0 <= slip < 1:
        raise AssayError(f"slip={slip} is not a probability below 1. Use 0 <= slip < 1")
    eye = torch.eye(len(successors), dtype=torch.float64)
    moves_SAS = eye[torch.from_numpy(successors)]
    mixed_SAS = (1 - slip) * moves_SAS + slip * moves_SAS.mean(1, keepdim=True)
    mixed_R = (1 - slip) * reward + slip * reward.mean(1, keepdim=True)
    mixed_SAS[goal] = eye[goal]
    return Table(mixed_SAS, mixed_R, eye[goal].bool(), eye[first], horizon)


def chain(length: int = 5, slip: float = 0.0) -> SteppedTask:
    """Returns a chain of states, starting in the first: 0 goes left, 1 right; reward 1 on entering the last state."""
    if length < 2:
        raise AssayError(f"chain: length={length} leaves no decision. Use 2 or more")
    places = np.arange(length)
    successors = np.stack([places - 1, places + 1], 1).clip(0, length - 1)
    reward = torch.zeros(length, 2, dtype=torch.float64)
    reward[length - 2, 1] = 1.0
    table = walk(successors, reward, 0, length - 1, slip, 4 * length)
    return tabular(f"chain({length}, slip {slip:g})", table)


def gridworld(size: int = 4, slip: float = 0.0) -> SteppedTask:
    """Returns an empty square: up, right, down, left; reward -1 each decision, from one corner to the opposite one."""
    if size < 2:
        raise AssayError(f"gridworld: size={size} leaves no decision; take 2 or more")
    reward = torch.full((size * size, 4), -1.0, dtype=torch.float64)
    table = walk(grid_moves(size, size), reward, 0, size * size - 1, slip, 4 * size * size)
    return tabular(f"gridworld({size}, slip {slip:g})", table)


def cliff() -> SteppedTask:
    """Returns cliff walking (Sutton & Barto 2018, example 6.6): 4 x 12, -1 per decision; falling costs 100."""
    successors = grid_moves(4, 12)
    first, goal = 36, 47
    falls = torch.from_numpy((successors > first) & (successors < goal))
    reward = torch.where(falls, -100.0, -1.0).double()
    successors = np.where(falls.numpy(), first, successors)
    return tabular("cliff", walk(successors, reward, first, goal, 0.0, 200))


def grid_moves(height: int, width: int) -> np.ndarray:
    """Returns where up, right, down and left lead from each cell, row by row, [S, 4]; walls stop."""
    row, column = np.divmod(np.arange(height * width), width)
    steps = ((-1, 0), (0, 1), (1, 0), (0, -1))
    moves = [(row + down).clip(0, height - 1) * width + (column + right).clip(0, width - 1) for down, right in steps]
    return np.stack(moves, 1)


LEVELS = {"chain": chain, "gridworld": gridworld, "cliff": cliff}
