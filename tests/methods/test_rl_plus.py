"""Demonstrations inside groups: what is recorded, and what is learnt from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.claims import probes
from assay.claims.laws.rollout import built, small_actor
from assay.core.errors import AssayError
from assay.core.record import Draw, Need, Origin
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.engine.loop_metrics import outcome_metrics
from assay.engine.placement import Placement
from assay.methods import rl_plus
from assay.methods.rl_plus import Balanced, LogpWhenShown, WithDemonstrations
from assay.parts.objectives.guided import Guided
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.language.addition import addition
from assay.tasks.language.countdown import countdown
from assay.tasks.tabular.table import chain
from tests.scenes import gathering

DRAW = Draw(3, (0,))
TASKS = {"tokens": countdown(2), "choices": cartpole(), "torques": pendulum(), "numbered": chain(4, slip=0.2)}
STARTS = np.array([5, 1, 8])


def actor_of(task):
    return built(small_actor(task.spec), task.spec)


@pytest.mark.parametrize("name", TASKS)
def test_every_group_holds_its_demonstration_beside_what_was_gathered(name: str) -> None:
    task, part = TASKS[name], WithDemonstrations(Episodes(num_starts=3, group_size=2))
    fresh = part(gathering(task, actor_of(task), STARTS, DRAW), part.init(Scene(task)))
    plain = Episodes(3, 2)(gathering(task, actor_of(task), STARTS, DRAW), {})
    shown = task.demonstrate(np.unique(STARTS), 0)
    is_own = fresh.source == int(Origin.POLICY)
    assert is_own.tolist() == [True] * 6 + [False] * 3
    assert torch.equal(fresh.own().action[plain.mask.nonzero(as_tuple=True)], plain.action[plain.mask])
    assert torch.equal(fresh.own().logp[:, : plain.num_columns], plain.logp)
    others = fresh.rows(~is_own)
    assert torch.equal(others.action[:, : shown.num_columns][shown.mask], shown.action[shown.mask])
    assert not others.logp.any()
    assert sorted(fresh.group.tolist()) == [1] * 3 + [5] * 3 + [8] * 3
    width = {"tokens": 64, "choices": 2, "torques": 2.0, "numbered": 2}[name]  # torques in half-ranges: -1 to 1
    assert fresh.column("uniform").tolist() == pytest.approx([1 / width] * 9)


@pytest.mark.parametrize("name", TASKS)
def test_the_column_is_the_gathering_policys_log_probability_in_rows_of_others_alone(name: str) -> None:
    task, part = TASKS[name], WithDemonstrations(Episodes(num_starts=3, group_size=2))
    actor = actor_of(task)
    fresh = part(gathering(task, actor, STARTS, DRAW), {})
    column = LogpWhenShown()(fresh, lambda rows, function: function(actor, rows))
    with torch.no_grad():
        scored = actor.score(fresh, frozenset({Need.LOGP})).logp
    torch.testing.assert_close(column[6:], scored[6:], rtol=1e-5, atol=1e-5)
    assert not column[:6].any()
    assert not column[~fresh.mask].any()
    assert not LogpWhenShown()(replace(fresh, source=None), lambda rows, function: 1 / 0).any()


def test_external_rows_are_weighed_as_written_down_by_hand() -> None:
    """One decision, slowly: pi 0.2, pi_old 0.1, uniform 0.5, focus 0.5, advantage 3."""
    record = probes.bandit_experience([0], [1.0], torch.zeros(2)).with_columns(source=torch.tensor([2]))
    numbers = torch.tensor([[[3.0]], [[0.1]], [[0.2]]], dtype=torch.float64)
    record = record.add({"advantage": numbers[0], "logp_shown": numbers[1].log(), "uniform": torch.ones(1)})
    logp = numbers[2].log().requires_grad_()
    part = Guided(weight=Balanced(focus=0.5, uniform=0.5))
    recipe = replace(rl_plus.recipe(), stages=(replace(rl_plus.recipe().stages[0], objective=(part,)),))
    loss = probes.loss(recipe, record, logp).loss
    ratio = 2 * 0.2 / (0.1 + (0.1 + 0.5) / 2)
    assert loss.item() == pytest.approx(-ratio * 3 * 0.8**0.5)
    (slope,) = torch.autograd.grad(loss, logp)
    assert slope.item() == pytest.approx(-ratio * 3 * 0.8**0.5)  # none through the exploration factor


def test_a_demonstration_that_is_certain_already_is_let_go_and_densities_above_one_are_no_fault() -> None:
    record = probes.bandit_experience([0, 0], [1.0, 1.0], torch.zeros(2)).with_columns(source=torch.tensor([2, 2]))
    logp = torch.tensor([[0.0], [30.0]]).double()
    record = record.add({"advantage": torch.ones_like(logp), "uniform": torch.ones(2), "logp_shown": logp})
    push = probes.decision_weights(rl_plus.recipe(), record, torch.tensor([[0.0], [30.0]]).double())
    assert push.tolist() == [[0.0], [0.0]]


def test_a_group_without_a_right_answer_learns_from_its_demonstration() -> None:
    task = addition(1)
    recipe = rl_plus.recipe().set("rollout.num_starts", 2).set("rollout.group_size", 2).set("actor.width", 16)
    loop = Loop(recipe, task, seed=0, num_steps=1)
    step = loop.step()
    fresh = step.fresh
    assert fresh is not None
    assert fresh.own().column("score").sum() == 0
    others = fresh.rows(fresh.source != int(Origin.POLICY))
    assert (others.column("advantage")[others.mask] > 0).all()
    assert step.metrics["reward"] == 0.0  # the metric speaks of the policy, not of who showed it how
    assert loop.progress.decisions == int(fresh.own().mask.sum())


def test_demonstrations_are_learnt_by_micro_batches_as_by_the_whole() -> None:
    task = addition(1)
    recipe = rl_plus.recipe().set("rollout.num_starts", 3).set("rollout.group_size", 2).set("actor.width", 16)
    updated = []
    for size in (0, 2):
        loop = Loop(recipe, task, seed=0, num_steps=1, placement=Placement(micro_batch=size))
        loop.step()
        updated.append(loop.engine.flats["actor"].values.clone())
    torch.testing.assert_close(*updated, rtol=1e-4, atol=1e-6)


def test_what_has_no_groups_or_no_demonstrations_is_refused() -> None:
    with pytest.raises(AssayError, match="draws its own starts"):
        WithDemonstrations(Fragments(2, 2)).init(Scene(cartpole()))
    with pytest.raises(AssayError, match="has none"):
        WithDemonstrations().init(Scene(Nameless()))
    assert outcome_metrics(addition(1).demonstrate(STARTS, 0).own())["longest"] == 0.0


class Nameless:
    """A task that shows nothing."""

    name = "nameless"
