"""Exact optima of the tabular testbeds against an independent computation: the linear program of the optimal value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.claims.testbeds.control.finite import Finite, shaped, states_of
from assay.claims.testbeds.control.logged_tree import DEPTH, WIDTH
from assay.claims.testbeds.control.regret import RegretTask
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.datasets.agents import uniform_actor
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.parts.sources.logged import Log, Logged, columns_of
from assay.runs.catalogue import find_task
from assay.runs.plan import make_plan
from assay.runs.stacked import train_stacked
from assay.tasks.control.stepping import Scripted

TABLES = ("random-mdp", "random-mdp:noise=3,branching=4,instance=2", "logged-tree", "logged-tree:instance=5")


def finite_of(address: str) -> tuple[RegretTask, Finite]:
    task = find_task(address)
    assert isinstance(task, RegretTask)
    assert isinstance(task.dynamics, Finite)
    return task, task.dynamics


def value_by_linear_program(finite: Finite) -> np.ndarray:
    """min sum V subject to V(s) >= R(s, a) + (1 - stop) mean V(s') for all s, a."""
    from scipy.optimize import linprog  # half a second: not while tests are collected

    num_states, num_actions, branching = finite.successors.shape
    rows, bounds = [], []
    for state in range(num_states):
        for action in range(num_actions):
            row = np.zeros(num_states + 1)
            for after in finite.successors[state, action]:
                row[after] += (1 - finite.stop) / branching
            row[state] -= 1.0
            rows.append(row[:-1])
            bounds.append(-finite.reward[state, action])
    found = linprog(np.ones(num_states), np.array(rows), bounds, bounds=(None, None), method="highs")
    assert found.success
    value: np.ndarray = found.x
    return value


@pytest.mark.parametrize("address", TABLES)
def test_the_optimum_is_that_of_the_linear_program(address: str) -> None:
    _, finite = finite_of(address)
    np.testing.assert_allclose(finite.values().max(1), value_by_linear_program(finite), atol=1e-6)


@pytest.mark.parametrize("address", TABLES)
def test_the_optimal_policy_scores_one_in_every_episode(address: str) -> None:
    task, _ = finite_of(address)
    assert task.expert is not None
    scores = evaluation.scores(Scripted(task.expert), task)
    assert len(scores) == 1_000
    np.testing.assert_allclose(scores, 1.0, atol=1e-6)


@pytest.mark.parametrize("address", TABLES)
def test_uniform_actions_score_zero_in_the_mean(address: str) -> None:
    task, _ = finite_of(address)
    scores = evaluation.scores(uniform_actor(task), task, num=4_000, greedy=False)
    assert abs(scores.mean()) < 4 * scores.std() / len(scores) ** 0.5


def test_the_score_is_the_regret_of_the_returns() -> None:
    task, finite = finite_of("logged-tree")
    starts = np.arange(500)
    played = task.judge(task.play(uniform_actor(task), starts, 0 * starts, Draw(3), split=1, greedy=False), 1)
    best = torch.from_numpy(finite.values().max(1))[states_of({"observation": played.context["observation"][:, 0]})]
    regret = (best - (played.reward * played.mask).sum(1)) / task.scale
    torch.testing.assert_close(1.0 - played.column("score").double(), regret.double(), atol=1e-5, rtol=0.0)


def test_a_potential_changes_rewards_and_no_losses() -> None:
    _, finite = finite_of("random-mdp")
    other = shaped(finite, np.linspace(-3.0, 3.0, len(finite.reward)))
    assert np.abs(other.reward - finite.reward).max() > 1.0
    np.testing.assert_allclose(other.gaps, finite.gaps, atol=1e-9)


def test_noise_is_in_the_rewards_alone_and_has_its_size() -> None:
    noisy, finite = finite_of("random-mdp:noise=3")
    calm, _ = finite_of("random-mdp")
    starts = np.arange(1_000)
    one, other = (
        task.play(uniform_actor(task), starts, 0 * starts, Draw(3), split=0, greedy=False) for task in (noisy, calm)
    )
    assert torch.equal(one.action, other.action)
    difference = (one.reward - other.reward)[one.mask]
    assert abs(float(difference.std()) - 3.0) < 0.1
    assert abs(float(difference.mean())) < 0.1
    assert finite.noise == 3.0


def test_every_seed_has_a_dataset_of_its_own_that_is_made_again_equally() -> None:
    task, _ = finite_of("logged-tree")
    first, again, other = (columns_of(Log(), task, Draw(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["action"], other["action"])
    recipe = make_plan("iql", "logged-tree").recipe
    hashes = {Loop(recipe, task, seed=seed, num_steps=1).states["sources"][0]["contents"].hash for seed in range(3)}
    assert len(hashes) == 3


def test_bc_learns_from_the_dataset_of_the_task() -> None:
    task = find_task("logged-tree:episodes=3")
    loop = Loop(make_plan("bc", task).recipe, task, seed=4, num_steps=1)
    assert loop.states["sources"][0]["contents"].hash == Logged().init(Scene(task, draw=Draw(4)))["contents"].hash


@pytest.mark.parametrize("stitching", [1, 2, 4])
def test_with_stitching_the_good_pieces_are_in_no_episode_together(stitching: int) -> None:
    task, finite = finite_of(f"logged-tree:stitching={stitching},coverage=1,episodes=200")
    assert task.logged is not None
    played = task.logged(Draw(0))
    good = (played.action == finite.best(played.context)) & played.mask
    assert good.sum(1).unique().tolist() == [DEPTH // stitching]
    state = states_of(played.context)[good]
    layers = torch.div(state, WIDTH, rounding_mode="floor")
    assert layers.unique().tolist() == list(range(DEPTH))


def test_coverage_and_corruption_are_shares_of_the_dataset() -> None:
    clean, finite = finite_of("logged-tree:coverage=0.3,episodes=1000")
    dirty, _ = finite_of("logged-tree:coverage=0.3,episodes=1000,corruption=0.2")
    assert clean.logged is not None
    assert dirty.logged is not None
    one, other = clean.logged(Draw(5)), dirty.logged(Draw(5))
    good = (one.action == finite.best(one.context))[one.mask]
    assert abs(float(good.float().mean()) - 0.3) < 0.03
    assert torch.equal(one.action, other.action)
    assert abs(float((one.reward != other.reward)[one.mask].float().mean()) - 0.2) < 0.03


@pytest.mark.parametrize(
    "address", ["logged-tree:coverage=2", "logged-tree:cover=0.2", "random-mdp:noise=x", "random-mdp:actions=1"]
)
def test_settings_that_do_not_exist_or_make_no_sense_are_refused(address: str) -> None:
    with pytest.raises(AssayError, match=r"Use|It has|Try"):
        find_task(address)


def test_seeds_with_different_data_are_not_stacked() -> None:
    with pytest.raises(AssayError, match="another dataset for each seed"):
        train_stacked("iql", "logged-tree", seeds=range(2), steps=1)
