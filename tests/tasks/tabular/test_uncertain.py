"""Uncertain tasks: their nominal regime, held-out regimes, and the worst one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.core.record import Draw
from assay.core.slots import UncertainTask
from assay.engine import evaluation
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.stepping import Scripted
from assay.tasks.tabular.table import action_values
from assay.tasks.tabular.uncertain import POLES, WINDS, uncertain_cartpole, windy_table
from assay.tasks.tabular.uncertain import windy_walk as walk_task

STARTS = np.arange(6)
NONE = np.zeros(6, np.int64)


# ---------------------------------------------------------------------------------------------------- tasks
def test_the_nominal_pole_is_cartpoles() -> None:
    actor = Scripted(lambda context: (context["observation"][:, 2] + context["observation"][:, 1] > 0).long())
    task = uncertain_cartpole()
    mine, theirs = (one.play(actor, STARTS, NONE, Draw(0), split=0, greedy=True) for one in (task, cartpole()))
    assert torch.equal(mine.mask, theirs.mask)
    assert torch.allclose(mine.context["observation"], theirs.context["observation"], atol=1e-4)


@pytest.mark.parametrize("task", [uncertain_cartpole(), walk_task()])
def test_held_out_starts_go_through_all_regimes(task: Any) -> None:
    assert isinstance(task, UncertainTask)
    assert not isinstance(cartpole(), UncertainTask)
    starts = np.array([5, 0, 3, 1, 9])
    expert = task.under(task.regimes[0]).expert
    played = task.play(Scripted(expert), starts, np.zeros(5, np.int64), Draw(0), split=1, greedy=True)
    assert played.column("regime").tolist() == [start % len(task.regimes) for start in starts]
    assert played.column("start").tolist() == starts.tolist()
    alone = task.under(task.regimes[9 % len(task.regimes)])
    other = alone.play(Scripted(expert), starts[4:], np.zeros(1, np.int64), Draw(0), split=1, greedy=True)
    mine = played.rows(slice(4, 5))
    assert torch.equal(mine.reward[mine.mask], other.reward[other.mask])
    nominal = task.play(Scripted(expert), starts, np.zeros(5, np.int64), Draw(0), split=0, greedy=True)
    assert nominal.column("regime").tolist() == [0] * 5


def test_evaluations_report_the_worst_regime() -> None:
    task = walk_task()
    scores, more = evaluation.outcomes(Scripted(task.under((0.0,)).expert), task)
    assert len(scores) == 20 * len(WINDS)
    assert more["evaluation_worst"] == pytest.approx(min(scores[k :: len(WINDS)].mean() for k in range(len(WINDS))))
    assert more["evaluation_worst"] < scores.mean() < 0
    assert evaluation.outcomes(Scripted(cartpole().expert), cartpole(), num=2)[1] == {}


def test_a_mixture_draws_every_pole() -> None:
    simulation = uncertain_cartpole().mixed().simulate(400)
    drawn = simulation.snapshot()["state"][4:].T
    assert sorted({tuple(pole) for pole in drawn.tolist()}) == sorted(POLES)


# ---------------------------------------------------------------------------------------------------- parts
def test_regimes_that_are_held_can_defeat_the_search() -> None:
    """With wind 0.2 it is best to wait for the wind; in the calm the max-min policy then waits for ever."""
    calm, windy = windy_table(0.0), windy_table(0.2)
    action = torch.stack([action_values(table, 0.99) for table in (calm, windy)]).amin(0).argmax(-1)
    state = int(calm.initial.argmax())
    for _ in range(200):
        state = int(calm.P[state, action[state]].argmax())
    assert not bool(calm.terminal[state])
