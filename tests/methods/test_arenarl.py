"""Tournaments inside a group: brackets, ranks, judges with noise, and the rewards they give."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.claims import probes
from assay.claims.laws.cases import EPISODES, RAGGED, SEGMENTS, TOKENS, TORQUES, build
from assay.core.record import Experience
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.arenarl import AnchorOnly, Arena, JudgedAlone, RoundRobin, SeededElimination, bracket, ranks
from assay.parts.rewards.judges import FunctionJudge, OutcomeJudge
from assay.runs import catalogue
from assay.tasks.language.addition import addition
from tests.methods.members import members

BATCHES = {"tokens": build(TOKENS, RAGGED), "segments": build(TOKENS, SEGMENTS), "torques": build(TORQUES, EPISODES)}


def judge_of(quality: list[float]) -> Callable[..., list[tuple[float, float]]]:
    return lambda pairs: [(quality[one], quality[other]) for one, other in pairs]


def test_brackets_by_hand() -> None:
    assert bracket(1) == [0]
    assert bracket(4) == [0, 3, 1, 2]
    assert bracket(8) == [0, 7, 3, 4, 1, 6, 2, 5]
    assert bracket(5) == [0, 3, 4, 1, 2]


def test_ranks_share_ties() -> None:
    assert ranks([(3.0, 0.0), (1.0, 0.0), (3.0, 0.0), (0.0, 1.0)]) == [0.5, 2.0, 0.5, 3.0]


@pytest.mark.parametrize("topology", [RoundRobin(), AnchorOnly(), SeededElimination()])
def test_a_judge_without_error_ranks_every_small_group(topology: Any) -> None:
    for num in range(1, 5):
        for order in itertools.permutations(range(num)):
            place = topology(num, judge_of([float(one) for one in order]))
            assert sorted(place) == list(range(num))
            assert place[order.index(num - 1)] == 0
            if not isinstance(topology, SeededElimination):
                assert place == [float(num - 1 - one) for one in order]


@pytest.mark.parametrize("topology", [RoundRobin(), AnchorOnly(), SeededElimination()])
def test_equal_members(topology: Any) -> None:
    assert topology(1, judge_of([0.3])) == [0.0]
    assert topology(2, judge_of([0.3, 0.3])) == [0.5, 0.5]


def members_of_one(outcomes: list[float]) -> Experience:
    return probes.bandit_experience([0] * len(outcomes), outcomes, torch.zeros(2))


def test_arena_gives_quantiles_and_a_group_of_one_a_half() -> None:
    batch = members_of_one([0.1, 0.9, 0.5, -3.0])
    assert Arena()(batch).reward.squeeze(1).tolist() == pytest.approx([1 / 3, 1.0, 2 / 3, 0.0])
    assert Arena()(replace(batch, group=None)).reward.squeeze(1).tolist() == [0.5] * 4
    squashed = replace(batch, reward=batch.reward.tanh())
    assert torch.equal(Arena()(squashed).reward, Arena()(batch).reward)


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("part", [Arena(OutcomeJudge(0.5)), JudgedAlone(OutcomeJudge(0.5))])
def test_an_episode_is_rewarded_once_and_rows_that_left_not_at_all(name: str, part: Any) -> None:
    batch = BATCHES[name]
    reward = part(batch).reward
    episodes = [rows for group in members(batch).values() for rows in group.values()]
    assert all(int((reward[rows] != 0).sum()) <= 1 for rows in episodes)
    assert not reward[~batch.mask].any()
    order = torch.arange(len(batch)).flip(0)
    if batch.episode is None:
        assert torch.equal(part(batch.rows(order)).reward, reward[order])


def test_a_users_judge_decides_an_arena() -> None:
    task = addition(1)
    shown = task.demonstrate(np.array([0, 1, 2]), 0)
    together = replace(shown, group=torch.zeros(3, dtype=torch.long)).add({"sample": torch.arange(3)})
    arena = Arena(FunctionJudge(lambda a, b: (1.0, 0.0)), RoundRobin())
    assert arena(together, Scene(task)).reward.sum() == pytest.approx(1.5)


@pytest.mark.parametrize("task", ["cartpole", "bandit"])
def test_a_tournament_trains_in_control(task: str) -> None:
    made = catalogue.find_task(task)
    loop = Loop(catalogue.recipe_for("arenarl", made, {}), made, seed=0, num_steps=2)
    step = loop.step()
    assert step.fresh is not None
    reward = (step.fresh.reward * step.fresh.mask).sum(1)
    assert float(reward.min()) >= 0.0
    assert float(reward.max()) <= 1.0
    assert torch.allclose(reward.view(-1, 8).sum(1), torch.full((8,), 4.0))
