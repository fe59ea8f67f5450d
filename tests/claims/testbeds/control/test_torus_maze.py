"""Shortest paths against scipy's, play of each seed, goals that are held out, and rewards with known optima."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from assay.claims.testbeds.control.regret import RegretTask
from assay.claims.testbeds.control.torus_maze import (
    REWARDS,
    Torus,
    TorusWalk,
    reward_process,
    reward_score,
)
from assay.core.record import Draw
from assay.datasets.made import uniform_actor
from assay.engine import evaluation
from assay.parts.sources.logged import columns_of
from assay.parts.sources.relabelled import Play
from assay.runs.catalogue import find_task
from assay.tasks.control.stepping import Scripted


@pytest.mark.parametrize("torus", [Torus(4, 0.0, 0), Torus(10, 0.5, 0), Torus(9, 1.0, 3)])
def test_distances_are_those_of_another_search(torus: Torus) -> None:
    num = torus.size**2
    links = np.zeros((num, num))
    links[np.arange(num)[:, None], torus.neighbours] = 1.0
    np.fill_diagonal(links, 0.0)
    np.testing.assert_array_equal(torus.distance, shortest_path(csr_matrix(links), unweighted=True))
    np.testing.assert_array_equal(torus.distance, torus.distance.T)


def test_the_expert_scores_one_on_a_thousand_goals_and_uniform_moves_zero() -> None:
    task = find_task("torus-maze")
    assert isinstance(task, RegretTask)
    assert task.expert is not None
    scores = evaluation.scores(Scripted(task.expert), task)
    assert len(scores) == 1_000
    np.testing.assert_allclose(scores, 1.0, atol=1e-6)
    chance = evaluation.scores(uniform_actor(task), task, num=3_000, greedy=False)
    assert abs(chance.mean()) < 4 * chance.std() / len(chance) ** 0.5


def test_held_out_goals_are_in_no_play() -> None:
    task = find_task("torus-maze:episodes=5")
    assert isinstance(task, RegretTask)
    assert isinstance(task.dynamics, TorusWalk)
    assert task.logged is not None
    torus = task.dynamics.torus
    assert not set(torus.goals(0)) & set(torus.goals(1))
    played = task.logged(Draw(0))
    assert not set(np.unique(torus.cells(played.context["goal"]))) & set(torus.goals(1))


def test_every_seed_has_its_own_play() -> None:
    task = find_task("torus-maze:episodes=3")
    one, again, other = (columns_of(Play(), task, Draw(seed)) for seed in (0, 0, 1))
    assert torch.equal(one["action"], again["action"])
    assert not torch.equal(one["action"], other["action"])


@pytest.mark.parametrize("which", [0, REWARDS - 1])
def test_the_optimum_of_a_reward_scores_one_and_satisfies_bellman(which: int) -> None:
    torus = Torus(8, 0.5, 0)
    process = reward_process(torus, which)
    q = process.values()
    np.testing.assert_allclose(q, process.reward + 0.9 * q.max(1)[torus.neighbours], atol=1e-9)
    assert reward_score(torus, which, q.argmax(1)) == pytest.approx(1.0)
    assert reward_score(torus, which, np.zeros(64, np.int64)) < 0.9
