"""Warm starts: subsets of critics, the warm-up, a share of the data, layer norm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from assay import recipes
from assay.core.record import Draw, Experience, Need
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.wsrl import LOG, from_scratch, offline
from assay.methods.wsrl import recipe as wsrl
from assay.models.bodies.normalised import Normalised, NormedEnsemble
from assay.models.heads.value import ActionValue
from assay.models.model import Critic
from assay.parts.sources.logged import Log, Logged
from assay.parts.sources.replay import Replay
from assay.parts.sources.retained import Retained
from assay.parts.sources.with_returns import RETURN, recorded_returns
from assay.parts.targets.one_step import chosen
from assay.recipes.presets import CONTINUOUS, MUJOCO
from assay.runs import catalogue
from tests.methods.transitions import SPEC, gradient, transitions
from tests.scenes import feeding


# ---------------------------------------------------------------------------------------------------- subsets
def test_subsets_of_critics_are_drawn_alike_with_replacement() -> None:
    values = torch.arange(10.0).view(10, 1, 1).expand(10, 4000, 1)
    uniform = torch.rand(4000, 1, 2, generator=torch.Generator().manual_seed(0))
    picked = chosen(values, uniform)
    assert picked.shape == (2, 4000, 1)
    counts = torch.bincount(picked.long().flatten(), minlength=10)
    assert int(counts.min()) > 650
    assert abs(float((picked[0] == picked[1]).float().mean()) - 0.1) < 0.03


def test_a_subset_of_none_is_the_minimum_over_all() -> None:
    recipe, batch = recipes.cql(CONTINUOUS), transitions()
    alone = replace(recipe, stages=(replace(recipe.stages[0], critic=recipe.stages[0].critic[:1]), recipe.stages[1]))
    many = alone.set("target.subset", 60)  # both critics are among sixty draws
    for name, value in gradient(alone, "critic", batch).items():
        torch.testing.assert_close(value, gradient(many, "critic", batch)[name])


# ---------------------------------------------------------------------------------------------------- warm start
def test_during_the_warm_up_nothing_moves_and_the_log_is_gone() -> None:
    """No parameter, copy or optimizer changes before the replay holds the warm-up; then all models move."""
    task = catalogue.find_task("pendulum")
    recipe = wsrl(warmup=24).set("source.replay.updates", 4).set("source.replay.batch", 8)
    loop = Loop(recipe, task, seed=0, num_steps=5)
    assert loop.states["sources"][0]["log"] == {}
    before = {name: flat.values.clone() for name, flat in loop.engine.flats.items()}
    for _ in range(2):
        fresh = loop.step().fresh
        assert fresh is not None
        again = loop.actor.score(fresh, frozenset({Need.LOGP})).logp
        torch.testing.assert_close(again, fresh.logp, atol=1e-3, rtol=1e-3)
        assert all(torch.equal(flat.values, before[name]) for name, flat in loop.engine.flats.items())
    loop.step()
    assert loop.engine.updates == 4
    assert not any(torch.equal(flat.values, before[name]) for name, flat in loop.engine.flats.items())


def test_four_critic_steps_for_each_step_of_the_actor() -> None:
    recipe = wsrl()
    assert [stage.every for stage in recipe.stages] == [1, 4]
    assert recipe.source.replay.updates == 4 * recipe.rollout.steps * recipe.rollout.num_envs  # type: ignore[attr-defined, union-attr]


def test_a_share_of_the_log_is_in_every_batch() -> None:
    """Log rewards are scaled apart from the fresh ones, which are all 5."""
    task = catalogue.find_task("cartpole")
    source = Retained(Replay(batch=8, updates=3, warmup=4), Logged((Log(1, reward_scale=-1.0),)), kept=0.25)
    state = source.init(Scene(task))
    first = torch.tensor([[True, False]]).expand(6, 2)
    no = torch.zeros_like(first)
    seen = {"observation": torch.zeros(6, 2, 4)}
    fresh = Experience(seen, torch.zeros(6, 2, dtype=torch.long), first, 0.0 * first, 5.0 * first, no, no)
    found = list(source(feeding(task, fresh, Draw(0)), state))
    assert len(found) == 3
    for batch in found:
        assert batch.reward[:, 0].tolist() == [5.0] * 6 + [-1.0] * 2
        assert len(batch) == 8


def test_layer_norm_holds_far_inputs_to_the_size_of_near_ones() -> None:
    q: Any = Critic(Normalised((16, 16)), ActionValue(3)).build(SPEC)
    seen, action = torch.randn(20, 1, 3), torch.rand(20, 1, 2)
    near = q({"observation": 1e2 * seen}, action)
    far = q({"observation": 1e6 * seen}, action)
    torch.testing.assert_close(near, far, atol=0.05, rtol=0.05)
    torch.testing.assert_close(q({"observation": seen}, action)[0], q.first({"observation": seen}, action))


def test_normed_members_do_not_know_of_each_other() -> None:
    """A member alone, layer by layer, says what it says beside the others."""
    net = NormedEnsemble(3, 4, 2, (5, 6))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_()
    rows = torch.randn(7, 4)
    hidden = rows
    for k, width in enumerate((5, 6)):
        inner = hidden @ net.linear.weights[k][1] + net.linear.biases[k][1]
        normed = torch.nn.functional.layer_norm(inner, (width,)) * net.scales[k][1] + net.shifts[k][1]
        hidden = normed.relu()
    torch.testing.assert_close(net(rows)[1], hidden @ net.linear.weights[2][1] + net.linear.biases[2][1])


# ---------------------------------------------------------------------------------------------------- Cal-QL
def test_recorded_returns_stop_at_ends_of_either_kind() -> None:
    flags = torch.tensor([[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]], dtype=torch.bool)
    cut = torch.tensor([[0, 0], [0, 0], [0, 0], [1, 0], [1, 0]], dtype=torch.bool)
    reward = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).unsqueeze(1).expand(5, 2)
    found = recorded_returns({"reward": reward, "terminal": flags, "truncated": cut}, 0.5)
    assert found[:, 0].tolist() == [2.0, 2.0, 5.0, 4.0, 5.0]
    assert not found[:, 1].any()


def test_far_below_every_value_cal_ql_is_cql() -> None:
    batch = transitions()
    low = batch.add({RETURN: torch.full_like(batch.reward, -1e6)})
    for name, value in gradient(offline(LOG), "critic", batch).items():
        torch.testing.assert_close(value, gradient(offline(LOG, calibrated=True), "critic", low)[name])


def test_variants_are_reached_by_name_and_train() -> None:
    task = catalogue.find_task("pendulum")
    first = catalogue.find_method("wsrl:cal-ql")[1].recipe(CONTINUOUS).before[0].recipe
    Loop(replace(first, source=replace(first.source, logs=(Log(1),), updates=1)), task, seed=0, num_steps=1).step()
    rival = catalogue.find_method("wsrl:rlpd")[1].recipe(CONTINUOUS)
    assert not rival.before
    assert (rival.source.kept, rival.critics) == (0.5, wsrl().critics)


def test_on_real_tasks_it_has_the_published_sizes() -> None:
    """Presets decide networks, horizon, warm-up and budget; on the pendulum they are small."""
    large, small = wsrl(MUJOCO), wsrl(CONTINUOUS)
    assert (large.source.replay.warmup, small.source.replay.warmup) == (5_000, 200)
    assert large.critics["q"].body.hidden == large.before[0].recipe.critics["q"].body.hidden == (256, 256)
    assert [one.stages[0].critic[0].target.discount for one in (large, large.before[0].recipe)] == [0.99, 0.99]
    assert (large.copies["q_target"].rate, small.copies["q_target"].rate) == (0.004, 0.02)
    assert large.before[0].steps * large.before[0].recipe.source.updates == 500_000
    assert from_scratch(MUJOCO).critics == large.critics
