"""A corridor with costs: three lanes, rewards and hazards on their cells, and the exact optimum under a budget.

Axes: L positions, 3 lanes, B episodes, T decisions.

A decision steers one lane up, straight on or one lane down and moves one position forward; the cell that is entered
pays its reward and costs 5 if it is a hazard. Hazards are in the outer lanes and pay most. The best return with an
expected cost up to `budget` is that of a linear program over occupancies; by duality

    J*(budget) = min over price >= 0 of  V*(reward - price * cost) + price * budget

`evaluation` is the return, 0 at J*(0), the best without any cost, and 1 at J*(budget): above 1 only with too much
cost. (Uniform actions cost too much and may exceed J*, so that they are no zero.) `WithinBudget` takes off what a
policy costs beyond the budget, at twice the price at the optimum; it is at most 1 for every policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.finite import Finite
from assay.claims.testbeds.control.regret import RegretTask, at_least, name_with_dials
from assay.core.record import Draw, Experience
from assay.core.spaces import Context
from assay.ops import random
from assay.tasks.control.costs import costed
from assay.tasks.control.stepping import ArraySimulation

LENGTH, LANES = 12, 3
HAZARDS = 0.7
"""Share of the outer cells that are hazards."""
COST = 5.0
"""Cost of entering a hazard."""


@dataclass(frozen=True, eq=False)
class Corridor:
    """The process of rewards, and `cost` [S + 1] of entering each state; the last cells lead to the end."""

    finite: Finite
    cost: np.ndarray

    def priced(self, price: float) -> Finite:
        """Returns the process of reward - price * cost."""
        return replace(self.finite, reward=self.finite.reward - price * self.entered)

    @property
    def entered(self) -> np.ndarray:
        """Returns the expected cost of each action, [S, A]."""
        return self.cost[self.finite.successors].mean(2)

    def bound(self, price: float, budget: float) -> tuple[float, float]:
        """Returns the dual value at a price, and the cost of a policy that is optimal there."""
        q = self.priced(price).values()
        policy = np.eye(q.shape[1])[q.argmax(1)]
        spent = replace(self.finite, reward=self.entered).policy_value(policy)[: self.finite.num_first].mean()
        return float(q.max(1)[: self.finite.num_first].mean()) + price * budget, float(spent)

    def optimum(self, budget: float) -> tuple[float, float]:
        """Returns J*(budget) and the price there, by bisection of the dual's slope, budget - cost."""
        low, high = 0.0, 100.0
        if self.bound(0.0, budget)[1] <= budget:
            return self.bound(0.0, budget)[0], 0.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.bound(middle, budget)[1] > budget else (low, middle)
        return self.bound(high, budget)[0], high


def corridor(instance: int) -> Corridor:
    """Returns rewards and hazards of an instance: hazards pay 1 to 3, other cells 0 to 1."""
    num_states, draw = (LENGTH + 1) * LANES, Draw(instance, (44,))
    cell = np.arange(num_states)
    lane, position = cell % LANES, cell // LANES
    there = (position[:, None] + 1) * LANES + (lane[:, None] + np.array([-1, 0, 1])).clip(0, LANES - 1)
    successors = np.minimum(there, num_states)
    hazard = (random.uniform(draw, 0, cell) < HAZARDS) & (lane != LANES // 2)
    pays = np.append(random.uniform(draw, 1, cell) * np.where(hazard, 2.0, 1.0) + hazard, 0.0)
    cost = np.append(COST * hazard, 0.0)
    finite = Finite(successors[..., None], pays[successors], LANES, LENGTH + 2)
    return Corridor(finite, cost)


def hazard_cost(cost: Tensor, context: Context) -> Tensor:
    """Returns the cost of the cell that is seen, [N, 1]; the end, seen as zeros, costs nothing."""
    return (context["observation"] @ cost)[:, None]


def unpaid(reward_of_best: float, experience: Experience) -> Tensor:
    """Returns what each decision's reward lacks, so that the sum over an episode is J* - return."""
    first = torch.zeros_like(experience.reward)
    first[:, 0] = reward_of_best
    return first - experience.reward


@dataclass(frozen=True)
class WithinBudget:
    """The last held-out return minus `price` times the held-out cost beyond `budget`: a metric of measured claims."""

    budget: float
    price: float

    def __call__(self, curves: Sequence[Mapping[str, Any]]) -> float:
        """Returns the number of the last evaluation."""
        last = [row for row in curves if row.get("evaluation_cost") is not None][-1]
        return float(last["evaluation"]) - self.price * max(0.0, float(last["evaluation_cost"]) - self.budget)


def within_budget(budget: float = 10.0, instance: int = 0) -> WithinBudget:
    """Returns the metric of a corridor: the price is twice the optimum's, in units of the score."""
    here = corridor(instance)
    _, price = here.optimum(budget)
    return WithinBudget(budget, 2.0 * price / lead(here, budget))


def lead(here: Corridor, budget: float) -> float:
    """Returns J*(budget) - J*(0)."""
    return here.optimum(budget)[0] - here.optimum(0.0)[0]


def cost_corridor(budget: float = 10.0, instance: int = 0) -> RegretTask:
    """Returns the task; its cost is 5 for each hazard that is entered. The expert is optimal at the price of the
    budget; it may cost a little less than the budget, which mixed policies use up.
    """
    at_least("cost-corridor", 0.1, budget=budget)
    at_least("cost-corridor", 0, instance=instance)
    name, here = name_with_dials("cost-corridor", budget=(budget, 10.0), instance=(instance, 0)), corridor(instance)
    finite, (best, price) = here.finite, here.optimum(budget)
    task = RegretTask(
        name,
        finite.spec,
        partial(ArraySimulation, finite),
        here.priced(price).best,
        finite,
        reckless=finite.best,
        losses=partial(unpaid, best),
        scale=lead(here, budget),
    )
    costly = costed(task, name, partial(hazard_cost, torch.from_numpy(here.cost[:-1]).float()))
    assert isinstance(costly, RegretTask)
    return costly
