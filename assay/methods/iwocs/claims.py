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
from assay.tasks.tabular.uncertain import windy_table

SETTLED = 1e-12


def picked(index: Tensor, axis: int) -> Callable[[Tensor], Tensor]:
    """Returns a function that picks entries along an axis: the candidates of a regime, the actions of a policy."""
    return lambda values: values.gather(axis, index.unsqueeze(axis)).squeeze(axis)


@dataclass(frozen=True, eq=False)
class UncertainTable:
    """P [K, S, A, S], R [S, A] and `terminal` [S]; candidate 0 everywhere is the nominal regime; starts in `first`."""

    P: Tensor
    R: Tensor
    terminal: Tensor
    discount: float
    first: int = 0

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

    def optimal(self, regime_SA: Tensor) -> Tensor:
        """Returns Q* of one regime, by value iteration."""
        return self.settled(picked(regime_SA, 0), lambda q: q.amax(1))

    def robust(self) -> Tensor:
        """Returns Q of robust value iteration: nature chooses the worst candidate again at every step."""
        return self.settled(lambda q_KSA: q_KSA.amin(0), lambda q: q.amax(1))

    def worst_regime(self, action_S: Tensor) -> Tensor:
        """Returns the regime [S, A] that minimises the policy's value in all states at once."""
        take = picked(action_S, 1)
        return self.backup(take(self.settled(lambda q_KSA: q_KSA.amin(0), take))).argmin(0)

    def value(self, action_S: Tensor, regime_SA: Tensor) -> float:
        """Returns the policy's value from the first state in one regime."""
        q = self.settled(picked(regime_SA, 0), picked(action_S, 1))
        return float(q[self.first, action_S[self.first]])

    def worst_value(self, action_S: Tensor) -> float:
        """Returns the policy's value from the first state in its worst regime."""
        return self.value(action_S, self.worst_regime(action_S))

    def best(self, q_SA: Tensor) -> float:
        """Returns the best value in the first state."""
        return float(q_SA[self.first].max())


def acting(values: Sequence[Tensor]) -> Any:
    """Returns the method's own actor over tables of action values [S, A]: argmax_a min_j Q_j."""
    spec = Spec(Discrete(values[0].shape[0]), Discrete(values[0].shape[1]), 1)
    actor: Any = MaxMin(Policy(Table(), Greedy()), len(values), coder=None).build(spec)
    for member, table in zip(actor.members, values, strict=True):
        member.body.table.data = table.clone()
    return actor


def worst_case_search(table: UncertainTable, limit: int = 50) -> tuple[float, int]:
    """IWOCS (arXiv:2410.06212): solve the nominal regime; act by argmax_a min_j Q_j; solve the worst regime for that;
    stop when the worst value is what the regimes solved so far predict, or nothing new is found. Returns the policy's
    worst value, and the number of regimes solved.
    """
    regimes, values = [table.nominal], [table.optimal(table.nominal)]
    while True:
        action = acting(values).act({"state": torch.arange(len(table.R))}, None)[0]
        worst, value = table.worst_regime(action), table.worst_value(action)
        predicted = min(map(table.best, values))
        seen = any(torch.equal(worst, regime) for regime in regimes)
        if value >= predicted - 1e-9 or seen or len(regimes) == limit:
            return value, len(regimes)
        regimes, values = [*regimes, worst], [*values, table.optimal(worst)]


def best_worst_value(table: UncertainTable) -> float:
    """Returns max over deterministic policies of min over regimes of the value in the first state, by enumeration."""
    num_candidates, num_states, num_actions = table.P.shape[:3]
    state, best = torch.arange(num_states), -float("inf")
    for action in map(torch.tensor, product(range(num_actions), repeat=num_states)):
        choices = map(torch.tensor, product(range(num_candidates), repeat=num_states))
        regimes = (table.nominal.index_put((state, action), choice) for choice in choices)  # of the actions taken
        best = max(best, min(table.value(action, regime) for regime in regimes))
    return best


def random_table(seed: int, num_states: int = 4, num_actions: int = 2, num_candidates: int = 2) -> UncertainTable:
    """Returns uniformly drawn transitions and rewards, discount 0.8; no terminal state."""
    shape = (num_candidates, num_states, num_actions, num_states)
    numbers = torch.from_numpy(random.uniform(Draw(seed), np.arange(int(np.prod(shape))))).view(shape)
    reward = torch.from_numpy(random.uniform(Draw(seed, (1,)), np.arange(num_states * num_actions)))
    drawn = numbers.pow(4)
    nowhere = torch.zeros(num_states, dtype=torch.bool)
    return UncertainTable(drawn / drawn.sum(-1, keepdim=True), reward.view(num_states, num_actions), nowhere, 0.8)


def from_brute_force() -> float:
    """Returns the difference of the found worst value from enumeration of all policies and regimes."""
    table = random_table(0, num_states=3)
    return abs(worst_case_search(table)[0] - best_worst_value(table))


def windy_walk(seed: int = 0, winds: tuple[float, ...] = (0.0, 0.2, 0.4)) -> UncertainTable:
    """The walk of `windy_table` on 5 x 6 cells, in a wind that is nature's choice for each (cell, action); a third of
    the cells, drawn by the seed, are calm.
    """
    is_calm = torch.from_numpy(random.uniform(Draw(seed), np.arange(30)) < 1 / 3)
    walks = [windy_table(wind * (~is_calm).double(), height=5) for wind in winds]
    P, first = torch.stack([walk.P for walk in walks]), int(walks[0].initial.argmax())
    return UncertainTable(P, walks[0].R, walks[0].terminal, 0.99, first)
