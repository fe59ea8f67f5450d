"""The tracker's optimum against scipy's solution of the algebraic Riccati equation and against simulated costs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

from assay.claims.testbeds.control.lq_tracker import MASSES, POWER, REACH, F, G, Q, Tracker
from assay.claims.testbeds.control.regret import RegretTask
from assay.core.record import Draw
from assay.datasets.made import uniform_actor
from assay.engine import evaluation
from assay.runs.catalogue import find_task
from assay.tasks.control.stepping import Scripted

ADDRESSES = ("lq-tracker", "lq-tracker:price=3,noise=0.2", "lq-tracker:discount=0.8,horizon=10")


def tracker(address: str) -> tuple[RegretTask, Tracker]:
    task = find_task(address)
    assert isinstance(task, RegretTask)
    assert isinstance(task.dynamics, Tracker)
    return task, task.dynamics


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_value_solves_the_algebraic_riccati_equation(address: str) -> None:
    dynamics = tracker(address)[1]
    root = dynamics.discount**0.5
    value = solve_discrete_are(root * F, root * G, Q, dynamics.price * np.eye(MASSES))
    np.testing.assert_allclose(dynamics.riccati[0], value, atol=1e-9)


@pytest.mark.parametrize("price", [1.0, 3.0, 10.0])
def test_the_optimal_push_stays_inside_the_bounds(price: float) -> None:
    gain = Tracker(40, 0.0, price, 0.95).riccati[1]
    state = REACH * np.array(list(itertools.product((-1.0, 1.0), repeat=2 * MASSES))).T
    for _ in range(40):
        assert np.abs(gain @ state).max() <= POWER
        state = F @ state + G @ gain @ state


@pytest.mark.parametrize("address", ADDRESSES[::2])
def test_the_optimal_policy_scores_one_and_uniform_actions_zero(address: str) -> None:
    task, _ = tracker(address)
    assert task.expert is not None
    np.testing.assert_allclose(evaluation.scores(Scripted(task.expert), task), 1.0, atol=1e-5)
    scores = evaluation.scores(uniform_actor(task), task, num=2_000, greedy=False)
    assert abs(scores.mean()) < 4 * scores.std() / len(scores) ** 0.5


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_losses_are_the_regret_of_the_simulated_costs(noise: float) -> None:
    task, dynamics = tracker(f"lq-tracker:noise={noise},horizon=30")
    starts = np.arange(4_000)
    played = task.judge(task.play(uniform_actor(task), starts, 0 * starts, Draw(1), split=1, greedy=False), 1)
    fading = dynamics.discount ** np.arange(played.num_columns)
    value, seen = dynamics.riccati[0], played.context["observation"].double().numpy()
    costs = (-(played.reward * played.mask).double().numpy() * fading).sum(1)
    tail = dynamics.discount**30 * np.einsum("bi,ij,bj->b", seen[:, -1], value, seen[:, -1])
    chance = noise**2 * np.trace(value) * sum(dynamics.discount ** (time + 1) for time in range(30))
    regret = costs + tail - np.einsum("bi,ij,bj->b", seen[:, 0], value, seen[:, 0]) - chance
    lost = (1.0 - played.column("score").double().numpy()) * task.scale
    error = regret - lost
    assert abs(error.mean()) < 4 * error.std() / len(error) ** 0.5 + 1e-5 * task.scale
    if not noise:
        assert np.abs(error).max() < 1e-4 * task.scale
