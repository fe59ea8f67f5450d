"""Patients: a step by hand, where the poison is, what costs, and the log of a draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.testbeds.control.treatment import MOST_GIVEN, Patient, treatment
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.tasks.control.stepping import Scripted

STATE = np.array([[0.8, 0.5], [0.2, 0.72], [0.1, 0.6]])


def test_a_step_by_hand() -> None:
    given, chance = np.array([[0.5, 0.1], [0.8, 0.6]]), np.array([0.5, 1.0])
    (severity, pressure, effect), reward, terminal = Patient(0.5).step(STATE, given, chance)
    np.testing.assert_allclose(effect, [0.1 + 0.3 * 0.4, 0.6 + 0.3 * 0.2])
    pulled = np.array([1.4 * 0.22 - 0.06 - 0.2, 1.4 * 0.66 - 0.36 - 0.72])
    np.testing.assert_allclose(pressure, STATE[1] + 0.4 * pulled)
    np.testing.assert_allclose(severity, [0.8 + 0.02 - 0.022, 0.5 + 0.02 - 0.066 + 0.5 * 0.5 + 0.02])
    np.testing.assert_allclose(reward, -severity, rtol=1e-6)
    assert not terminal.any()


@pytest.mark.parametrize(("given", "better"), [((0.6, 0.2), True), ((1.0, 1.0), False)])
def test_more_heals_faster_until_it_is_poison(given: tuple[float, float], better: bool) -> None:
    returns = []
    for each in ((0.4, 0.1), given):
        actor = Scripted(lambda context, each=each: torch.tensor([each]).expand(len(context["observation"]), 2))
        rows = np.arange(20)
        played = treatment().play(actor, rows, 0 * rows, Draw(0), split=1, greedy=True)
        assert played.cost is not None
        high = played.context["observation"][:, 1:, 1] > 0.7
        assert torch.equal(played.cost[:, :-1, 0], high.float())
        returns.append(float((played.reward * played.mask).sum(1).mean()))
    assert (returns[1] > returns[0] + 1.0) == better
    assert (returns[1] < returns[0] - 10.0) != better


def test_the_log_of_a_draw_has_no_high_dose_and_costs_of_one_clinician_alone() -> None:
    task: Any = treatment(episodes=10)
    log, again, other = (task.logged(Draw(seed)) for seed in (0, 0, 1))
    assert torch.equal(log.action, again.action)
    assert not torch.equal(log.action, other.action)
    assert len(log) == 30
    assert bool((log.action <= torch.tensor(MOST_GIVEN)).all())
    cost = log.cost.sum((1, 2))
    assert float(cost[:20].sum()) == 0.0 < float(cost[20:].min())
    assert int(log.mask.sum()) == 600


def test_dials_are_checked_and_named() -> None:
    with pytest.raises(AssayError, match="poison=-1 is below 0"):
        treatment(-1.0)
    with pytest.raises(AssayError, match="episodes=0 is below 1"):
        treatment(episodes=0)
    assert treatment(poison=0.25).name == "treatment:poison=0.25"
