"""A darkroom: goals of both splits, attempts in a trial, what pays, and the histories of a draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.testbeds.control.darkroom import MOVES, Darkroom, darkroom
from assay.core.errors import AssayError
from assay.core.record import Draw


def test_a_quarter_of_the_goals_is_held_out_and_none_is_in_both_splits() -> None:
    both = [{tuple(goal) for goal in Darkroom(4, 15, 8, split).goals.tolist()} for split in (0, 1)]
    assert [len(one) for one in both] == [60, 20]
    assert len(both[0] | both[1]) == 80
    assert (0, 0) not in both[0] | both[1]


def test_a_decision_at_the_goal_pays_and_the_last_one_of_an_attempt_leads_back() -> None:
    room = Darkroom(1, 3, 2)
    state, seen = np.array([[0], [0], [1], [1], [0]]), []
    for action in (1, 3, 1, 2, 4, 4):
        state, reward, terminal = room.step(state, np.array([action]), None)
        seen.append((*state[:2, 0].tolist(), float(reward[0])))
        assert not terminal[0]
    assert seen == [(1, 0, 0.0), (1, 1, 1.0), (0, 0, 1.0), (-1, 0, 0.0), (-1, -1, 0.0), (0, 0, 0.0)]
    assert room.limit == 6
    assert MOVES[[1, 3]].tolist() == [[1, 0], [0, 1]]


def test_agents_learn_unless_they_are_noise() -> None:
    for noise, least, most in ((0.0, 9.0, 13.0), (1.0, 0.0, 1.0)):
        task: Any = darkroom(agents=2, noise=noise)
        data = task.logged(Draw(3))
        returns = data.reward[:, :-1].view(120, 8, 15).sum(2).mean(0)
        assert returns[0] < 1.0
        assert least < float(returns[-1]) < most
        assert list(data.context) == ["observation"]
        assert task.judge(data, 0).column("score").mean() == pytest.approx(float(returns.mean()) / 15, abs=1e-5)


def test_histories_of_a_goal_follow_each_other_and_belong_to_the_draw() -> None:
    task: Any = darkroom(size=3, attempts=4, agents=3, noise=0.0)
    one, again, other = (task.logged(Draw(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.action, again.action)
    assert not torch.equal(one.action, other.action)
    for row, goal in enumerate(np.repeat(task.dynamics.goals, 3, 0).tolist()):
        paid = one.reward[row, :-1] > 0
        within = torch.arange(60) % 15 != 14  # the last decision of an attempt leads back to the middle
        assert {tuple(place) for place in one.context["observation"][row, 1:][paid & within].tolist()} == {tuple(goal)}


def test_wrong_dials_are_refused() -> None:
    with pytest.raises(AssayError, match="noise=2 is not a share"):
        darkroom(noise=2.0)
    with pytest.raises(AssayError, match="size=1 is below 3"):
        darkroom(size=1)
    with pytest.raises(AssayError, match="size=4 has no middle"):
        darkroom(size=4)
    assert darkroom(noise=0.25, size=5).name == "darkroom:size=5,noise=0.25"
