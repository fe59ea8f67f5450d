"""The corridor's optimum under a budget against the linear program over occupancies."""

from __future__ import annotations

import numpy as np
import pytest

from assay.claims.testbeds.control.cost_corridor import LANES, Corridor, corridor, within_budget
from assay.claims.testbeds.control.regret import RegretTask
from assay.datasets.agents import uniform_actor
from assay.engine import evaluation
from assay.runs.catalogue import find_task
from assay.tasks.control.stepping import Scripted


def by_linear_program(here: Corridor, budget: float) -> float:
    """max sum mu R subject to the flow of occupancies mu(s, a) >= 0 from even starts, and sum mu C <= budget."""
    from scipy.optimize import linprog  # half a second: not while tests are collected

    num_states, num_actions, _ = here.finite.successors.shape
    flow, first = np.zeros((num_states, num_states * num_actions)), np.zeros(num_states)
    first[:LANES] = 1.0 / LANES
    for state in range(num_states):
        for action in range(num_actions):
            flow[state, state * num_actions + action] += 1.0
            if (after := here.finite.successors[state, action, 0]) < num_states:
                flow[after, state * num_actions + action] -= 1.0
    spent = here.entered.reshape(1, -1)
    found = linprog(-here.finite.reward.ravel(), spent, [budget], flow, first, method="highs")
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize("instance", [0, 1])
@pytest.mark.parametrize("budget", [0.0, 3.0, 10.0, 1_000.0])
def test_the_optimum_is_that_of_the_linear_program(instance: int, budget: float) -> None:
    here = corridor(instance)
    assert here.optimum(budget)[0] == pytest.approx(by_linear_program(here, budget), abs=1e-6)


@pytest.mark.parametrize("budget", [5, 10, 20])
def test_within_budget_the_expert_is_nearly_one_and_others_are_below(budget: float) -> None:
    task, metric = find_task(f"cost-corridor:budget={budget}"), within_budget(budget)
    assert isinstance(task, RegretTask)
    assert task.expert is not None
    assert task.reckless is not None
    found = []
    for actor, greedy in ((Scripted(task.expert), True), (Scripted(task.reckless), True), (uniform_actor(task), False)):
        scores, more = evaluation.outcomes(actor, task, greedy=greedy)
        found.append(metric([{"evaluation": float(scores.mean()), **more}]))
    assert 0.5 < found[0] <= 1.02  # 1,000 starts
    assert found[1] < 0.0
    assert found[2] < 0.0
