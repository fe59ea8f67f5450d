"""MDPs with uncertain transitions: solved, robustly solved, and by brute force.

Axes: K candidates, S states, A actions. Each (state, action) has K candidates for its transition, and nature chooses
one for each of them (an sa-rectangular set): a regime is a choice [S, A], and there are K^(S A) of them. float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.spaces import Discrete, Spec
from assay.methods.iwocs.models import MaxMin
from assay.models.bodies.table import Table
from assay.models.heads.value import Greedy
from assay.models.model import Policy
from assay.ops import random

SETTLED = 1e-12


@dataclass(frozen=True, eq=False)
class UncertainTable:
    """P [K, S, A, S], R [S, A] and `terminal` [S]; candidate 0 everywhere is the nominal regime; starts in state 0."""

    P: Tensor
    R: Tensor
    terminal: Tensor
    discount: float

    @property
    def nominal(self) -> Tensor:
        """Returns candidate 0 for every state and action."""
        return torch.zeros(self.R.shape, dtype=torch.int64)

    def backup(self, value_S: Tensor) -> Tensor:
        """Returns R + discount * P_k V under every candidate, [K, S, A]; 0 in terminal states."""
        return (self.R + self.discount * self.P @ value_S) * (~self.terminal)[:, None]

    def settled(self, of_candidates: Callable[[Tensor], Tensor], improve: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns Q [S, A] with Q = of_candidates(backup(improve(Q)))."""
        q = torch.zeros(self.R.shape, dtype=torch.float64)
        for _ in range(100_000):
            new = of_candidates(self.backup(improve(q)))
            if float((new - q).abs().max()) <= SETTLED:
                return new
            q = new
        raise AssayError(f"values with discount={self.discount} do not converge. Lower it")

    def held(self, regime_SA: Tensor) -> Callable[[Tensor], Tensor]:
        """Returns a function that picks the candidates' values under this regime."""
        return lambda q_KSA: q_KSA.gather(0, regime_SA[None])[0]

    def optimal(self, regime_SA: Tensor) -> Tensor:
        """Returns Q* of one regime, by value iteration."""
        return self.settled(self.held(regime_SA), lambda q: q.amax(1))

    def robust(self) -> Tensor:
        """Returns Q of robust value iteration: nature chooses the worst candidate again at every step."""
        return self.settled(lambda q_KSA: q_KSA.amin(0), lambda q: q.amax(1))

    def of_policy(self, action_S: Tensor, regime_SA: Tensor) -> Tensor:
        """Returns Q of a policy in one regime."""
        return self.settled(self.held(regime_SA), lambda q: q.gather(1, action_S[:, None])[:, 0])

    def worst_regime(self, action_S: Tensor) -> Tensor:
        """Returns the regime [S, A] that minimises the policy's value in all states at once."""
        q = self.settled(lambda q_KSA: q_KSA.amin(0), lambda q: q.gather(1, action_S[:, None])[:, 0])
        return self.backup(q.gather(1, action_S[:, None])[:, 0]).argmin(0)

    def worst_value(self, action_S: Tensor) -> float:
        """Returns the policy's value from state 0 in its worst regime."""
        return float(self.of_policy(action_S, self.worst_regime(action_S))[0, action_S[0]])


@dataclass(frozen=True)
class Search:
    """The result of a worst-case search: the policy, its worst value, and the number of regimes solved."""

    action_S: Tensor
    value: float
    solved: int


def acting(values: Sequence[Tensor]) -> Any:
    """Returns the method's own actor over tables of action values [S, A]: argmax_a min_j Q_j."""
    spec = Spec(Discrete(values[0].shape[0]), Discrete(values[0].shape[1]), 1)
    actor: Any = MaxMin(Policy(Table(), Greedy()), len(values), coder=None).build(spec)
    for member, table in zip(actor.members, values, strict=True):
        member.body.table.data = table.clone()
    return actor


def worst_case_search(table: UncertainTable, limit: int = 50) -> Search:
    """IWOCS (arXiv:2410.06212): solve the nominal regime; act by argmax_a min_j Q_j; solve the worst regime for that;
    stop when the worst value is what the regimes solved so far predict, or nothing new is found.
    """
    regimes, values = [table.nominal], [table.optimal(table.nominal)]
    while True:
        action = acting(values).act({"state": torch.arange(len(table.R))}, None)[0]
        worst, value = table.worst_regime(action), table.worst_value(action)
        predicted = min(float(q[0].max()) for q in values)
        seen = any(torch.equal(worst, regime) for regime in regimes)
        if value >= predicted - 1e-9 or seen or len(regimes) == limit:
            return Search(action, value, len(regimes))
        regimes, values = [*regimes, worst], [*values, table.optimal(worst)]


def best_worst_value(table: UncertainTable) -> float:
    """Returns max over deterministic policies of min over regimes of the value in state 0, by enumeration."""
    num_candidates, num_states, num_actions = table.P.shape[:3]
    best = -float("inf")
    for actions in product(range(num_actions), repeat=num_states):
        action = torch.tensor(actions)
        worst = float("inf")
        for choice in product(range(num_candidates), repeat=num_states):
            regime = torch.zeros(table.R.shape, dtype=torch.int64)
            regime[torch.arange(num_states), action] = torch.tensor(choice)  # other actions are not taken
            worst = min(worst, float(table.of_policy(action, regime)[0, action[0]]))
        best = max(best, worst)
    return best


def lowest_optimum(table: UncertainTable) -> float:
    """Returns min over all regimes of the optimal value in state 0, by enumeration."""
    num_candidates, num_states, num_actions = table.P.shape[:3]
    choices = product(range(num_candidates), repeat=num_states * num_actions)
    return min(float(table.optimal(torch.tensor(choice).view(num_states, num_actions))[0].max()) for choice in choices)


def best_on_average(table: UncertainTable) -> Tensor:
    """Returns the best actions [S] if every step draws its candidate uniformly: domain randomisation."""
    mean = UncertainTable(table.P.mean(0, keepdim=True), table.R, table.terminal, table.discount)
    return mean.optimal(mean.nominal).argmax(1)


def random_table(seed: int, num_states: int = 4, num_actions: int = 2, num_candidates: int = 2) -> UncertainTable:
    """Returns uniformly drawn transitions and rewards, discount 0.8; no terminal state."""
    shape = (num_candidates, num_states, num_actions, num_states)
    numbers = torch.from_numpy(random.uniform(Draw(seed), np.arange(int(np.prod(shape))))).view(shape)
    reward = torch.from_numpy(random.uniform(Draw(seed, (1,)), np.arange(num_states * num_actions)))
    drawn = numbers.pow(4)
    nowhere = torch.zeros(num_states, dtype=torch.bool)
    return UncertainTable(drawn / drawn.sum(-1, keepdim=True), reward.view(num_states, num_actions), nowhere, 0.8)


def windy_walk(seed: int = 0, winds: tuple[float, ...] = (0.0, 0.2, 0.4)) -> UncertainTable:
    """A walk above a cliff on 5 x 6 cells, along the second lowest row from its left end (state 0) to its right end.

    -1 per step: up, right, down, left. With probability 0, 0.2 or 0.4, nature's choice for each (cell, action), the
    wind blows one cell further down; a third of the cells, drawn by the seed, are calm. In the lowest row a step
    costs 20 and ends the walk.
    """
    height, width = 5, 6
    cell = np.arange(height * width)
    row, column = np.divmod(cell, width)
    down, right = np.array([-1, 0, 1, 0]), np.array([0, 1, 0, -1])
    first, goal, is_cliff = (height - 2) * width, (height - 1) * width - 1, row == height - 1
    order = np.r_[first, np.delete(cell, first)]  # the walk must start in state 0
    eye, moves = torch.eye(len(cell), dtype=torch.float64), []
    for blown in (0, 1):
        reached = (row[:, None] + down + blown).clip(0, height - 1) * width + (column[:, None] + right).clip(
            0, width - 1
        )
        reached[is_cliff] = goal
        moves.append(eye[torch.from_numpy(np.argsort(order)[reached[order]])])
    is_calm = torch.from_numpy((random.uniform(Draw(seed), cell) < 1 / 3)[order])
    wind_KS = torch.tensor(winds, dtype=torch.float64)[:, None] * ~is_calm
    reward = torch.from_numpy(np.where(is_cliff, -20.0, -1.0)[order])[:, None].expand(len(cell), len(down))
    P = torch.lerp(moves[0], moves[1], wind_KS[:, :, None, None])
    return UncertainTable(P, reward, torch.from_numpy((cell == goal)[order]), 0.99)
