"""The double well, the family of masses and the coded rule: optima and scores by a second route."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad
from scipy.optimize import minimize

from assay.claims.testbeds.control.coded_rule import CodedRule
from assay.claims.testbeds.control.double_well import HORIZON, DoubleWell
from assay.claims.testbeds.control.mass_family import MassFamily, costs, masses_of, robust_gain, worst
from assay.claims.testbeds.control.regret import RegretTask
from assay.core.record import Draw
from assay.datasets.made import uniform_actor
from assay.engine import evaluation
from assay.parts.sources.logged import Log, columns_of
from assay.runs.catalogue import find_task
from assay.tasks.control.stepping import Scripted

EXACT = ("double-well", "double-well:separation=0.3", "coded-rule", "coded-rule:cardinality=3,irrelevant=0")


def exact(address: str) -> RegretTask:
    task = find_task(address)
    assert isinstance(task, RegretTask)
    return task


@pytest.mark.parametrize("address", EXACT)
def test_the_optimum_scores_one_and_uniform_actions_zero(address: str) -> None:
    task = exact(address)
    assert task.expert is not None
    np.testing.assert_allclose(evaluation.scores(Scripted(task.expert), task), 1.0, atol=1e-5)
    scores = evaluation.scores(uniform_actor(task), task, num=4_000, greedy=False)
    assert abs(scores.mean()) < 4 * scores.std() / len(scores) ** 0.5


def test_the_loss_of_uniform_actions_is_the_integral() -> None:
    dynamics = DoubleWell(0.8)

    def at(angle: float) -> float:
        x, y = 0.8 * math.cos(angle / 2), 0.8 * math.sin(angle / 2)
        return float(
            dblquad(lambda b, a: min((a - x) ** 2 + (b - y) ** 2, (a + x) ** 2 + (b + y) ** 2), -1, 1, -1, 1)[0] / 4
        )

    mean = sum(at(2 * math.pi * (place + 0.5) / 16) for place in range(16)) / 16
    assert dynamics.scale == pytest.approx(HORIZON * mean, rel=2e-3)


def test_both_wells_are_demonstrated_and_their_mean_is_no_action() -> None:
    task = exact("double-well:error=0,episodes=2000")
    columns = columns_of(Log(), task, Draw(0))
    action, seen = columns["action"][:, 0], columns["context.observation"][:, 0]
    assert isinstance(task.dynamics, DoubleWell)
    lost = task.dynamics.lost(torch.atan2(seen[:, 1], seen[:, 0]).double() % (2 * math.pi), action.double())
    assert float(lost.max()) < 1e-9
    assert float(action.mean(0).norm()) < 0.05
    other = columns_of(Log(), task, Draw(1))
    assert not torch.equal(other["action"], columns["action"])


@pytest.mark.parametrize("spread", [1.5, 3.0, 6.0])
def test_no_feedback_is_better_in_the_worst_mass(spread: float) -> None:
    gain = np.array(robust_gain(spread))
    here = float(worst(gain[None], spread)[0])
    found = min(
        float(minimize(lambda g: float(worst(g[None], spread)[0]), gain + shift, method="Nelder-Mead").fun)
        for shift in (np.zeros(2), np.array([0.2, -0.1]))
    )
    assert here == pytest.approx(found, rel=1e-3)


def test_the_cost_of_feedback_is_that_of_the_simulation() -> None:
    family = find_task("mass-family")
    assert isinstance(family, MassFamily)
    gain = robust_gain(3.0)
    for (mass,) in masses_of(3.0):
        task = family.under((mass,))
        starts = np.arange(4_000)
        assert task.expert is not None
        played = task.play(Scripted(task.expert), starts, 0 * starts, Draw(0), split=1, greedy=True)
        returns = (played.reward * played.mask).sum(1).double().numpy()
        expected = -float(costs(np.array([gain]), mass)[0])
        assert abs(returns.mean() - expected) < 4 * returns.std() / len(returns) ** 0.5


def test_the_robust_feedback_scores_one_in_the_worst_mass() -> None:
    family = find_task("mass-family")
    assert isinstance(family, MassFamily)
    task = family.mixed()
    assert task.expert is not None
    more = evaluation.outcomes(Scripted(task.expert), family)[1]
    assert more["evaluation_worst"] == pytest.approx(1.0, abs=0.05)  # 200 starts for each mass


def test_irrelevant_codes_are_even_and_change() -> None:
    task = exact("coded-rule:cardinality=4,irrelevant=2")
    assert isinstance(task.dynamics, CodedRule)
    starts = np.arange(500)
    played = task.play(uniform_actor(task), starts, 0 * starts, Draw(0), split=0, greedy=False)
    codes = (played.context["observation"][..., 2:] * 4).round().long()[played.mask]
    for place in range(2):
        share = torch.bincount(codes[:, place], minlength=4).double() / len(codes)
        assert float((share - 0.25).abs().max()) < 0.04
