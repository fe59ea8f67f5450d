"""Certificates and what is trained for them: bounds, verdicts, pessimism, and the share of unsafe policies."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.claims import hc_rlhf as claims
from assay.claims import probes
from assay.claims.laws.rollout import built, small_actor
from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import ALONE, Scene
from assay.core.slots.scene import NoModels
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.loop_metrics import averages
from assay.methods import hc_rlhf
from assay.methods.hc_rlhf import (
    ChernoffBound,
    CostCertificate,
    LowestBound,
    ProductBound,
    StudentBound,
    augmented_cost,
    pessimistic,
)
from assay.parts.constraints.multiplier import Ascent, Multiplier
from assay.parts.rewards.cost import LengthCost, TaskCost
from assay.recipes.presets import CONTROL, LANGUAGE, TABLE
from assay.runs.plan import make_plan
from assay.runs.run import execute
from assay.tasks.control.hazards import hazards
from assay.tasks.language.addition import addition


def pulls(costs: list[float] | torch.Tensor, members: int | None = None) -> Experience:
    """One decision a row, with these costs."""
    cost = torch.as_tensor(costs, dtype=torch.float64)
    record = probes.bandit_experience([0] * len(cost), [0.0] * len(cost), torch.zeros(2), members)
    return record.with_columns(cost=cost.view(-1, 1, 1)).add({"advantage": torch.zeros(len(cost), 1).double()})


# ---------------------------------------------------------------------------------------------------- bounds
def test_bounds_are_those_of_the_tables() -> None:
    cost = torch.tensor([1.0, 2.0, 4.0, 3.0, 0.0]).double()
    slow = 2.0 + 1.533206 * math.sqrt(2.5) / math.sqrt(5)
    assert StudentBound()(cost, 0.1, 4.0) == pytest.approx(slow, abs=1e-5)
    assert ProductBound()(cost, 0.05, 5.0) == pytest.approx(5.0 - (0.05 * 4.0 * 3.0 * 1.0 * 2.0 * 5.0) ** 0.2)
    upper = ChernoffBound()(cost, 0.05, 4.0) / 4.0
    assert 5 * (0.5 * math.log(0.5 / upper) + 0.5 * math.log(0.5 / (1.0 - upper))) == pytest.approx(math.log(20.0))
    for bound in (ChernoffBound(), ProductBound()):  # those of Clopper and Pearson where nothing cost anything
        assert bound(torch.zeros(30).double(), 0.1, 7.0) == pytest.approx(7.0 * (1.0 - 0.1 ** (1.0 / 30.0)))


@pytest.mark.parametrize("largest", [1.0, 3.0])
def test_the_lowest_bound_spends_the_failure_once(largest: float) -> None:
    cost = torch.tensor([0.0, 1.0, 0.5]).double()
    both = [bound(cost, 0.05, largest) for bound in (ChernoffBound(), ProductBound())]
    assert LowestBound()(cost, 0.1, largest) == min(both)


@pytest.mark.parametrize("bound", [StudentBound(), LowestBound()])
def test_a_test_too_small_or_costs_out_of_range_certify_nothing(bound) -> None:
    nothing = replace(pulls([0.0, 0.0]), mask=torch.zeros(2, 1, dtype=torch.bool))
    assert not CostCertificate(5.0, bound=bound, largest=1.0)(nothing).holds
    assert math.isinf(StudentBound()(torch.zeros(1), 0.1, 1.0))
    assert math.isinf(LowestBound()(torch.tensor([0.0, 1.5]), 0.1, 1.0))
    assert math.isinf(LowestBound()(torch.tensor([0.0, -0.5]), 0.1, 1.0))


def test_student_passes_a_policy_at_the_limit_as_often_as_it_says_for_normal_costs() -> None:
    draw = np.random.default_rng(0)
    costs = torch.from_numpy(draw.normal(2.0, 1.0, (2000, 20)))
    share = np.mean([StudentBound()(row, 0.1, math.inf) <= 2.0 for row in costs])
    assert abs(share - 0.1) < 3 * math.sqrt(0.1 * 0.9 / 2000)


def test_the_test_is_never_wrong_more_often_than_it_says() -> None:
    for limit in (0.05, 0.3, 0.5, 0.9):
        assert claims.passes_at_the_limit(CostCertificate(limit, 0.1, 40, largest=1.0)) <= 0.1


@pytest.mark.parametrize("num", [30, 50, 200])
@pytest.mark.parametrize(("prob", "cost", "limit"), [(0.011, 100.0, 1.0), (0.051, 1.0, 0.05)])
def test_rare_costs_do_not_pass_as_none(prob: float, cost: float, limit: float, num: int) -> None:
    """Over 2,000 tests of an unsafe policy, of which Student's bound certifies up to 72 %."""
    happened = torch.from_numpy(np.random.default_rng(0).random((2000, num)) < prob).double()
    shares = [
        sum(bound(cost * row, 0.1, cost) <= limit for row in happened) / 2000
        for bound in (LowestBound(), StudentBound())
    ]
    assert shares[0] <= 0.1 < shares[1]


def test_costs_of_any_shape_do_not_pass_more_often_than_stated() -> None:
    draw = np.random.default_rng(1)
    for shape in ((0.2, 3.0), (5.0, 1.0), (0.05, 0.05)):
        costs = torch.from_numpy(10.0 * draw.beta(*shape, (500, 50)))
        limit = 10.0 * shape[0] / sum(shape)
        assert sum(LowestBound()(row, 0.1, 10.0) < limit for row in costs) / 500 <= 0.1


def test_without_a_largest_cost_nothing_is_certified_and_the_fix_is_named() -> None:
    record, task = pulls([0.0] * 2000), hazards()
    unknown = replace(task, spec=replace(task.spec, largest_cost=None))
    said = CostCertificate()(record, unknown)
    assert not said.holds
    assert "not known" in said.statement
    assert "--set certificate.largest=NUMBER" in said.statement
    assert CostCertificate()(record, task).holds
    assert CostCertificate(largest=60.0)(record, unknown).holds
    more = CostCertificate(limit=50.0, largest=60.0)(pulls([0.0] * 99 + [61.0]))
    assert not more.holds
    assert "raise certificate.largest" in more.statement


def test_a_refusal_says_how_many_episodes_would_do() -> None:
    record = pulls([0.0, 1.0] * 50)  # kl(0.5, 0.6) = 0.0204, and log(2 / 0.1) / 0.0204 = 147
    refused = CostCertificate(limit=0.6, largest=1.0)(record)
    assert not refused.holds
    assert "200 episodes would show it: --set certificate.num_starts=200" in refused.statement
    assert CostCertificate(limit=0.6, largest=1.0)(pulls([0.0, 1.0] * 100)).holds
    above = CostCertificate(limit=0.4, largest=1.0)(record)
    assert "no number of episodes shows it" in above.statement
    assert "would show" not in CostCertificate(limit=0.6, largest=1.0)(pulls([0.0] * 100)).statement


def test_the_largest_cost_of_an_episode_is_the_tasks_or_that_of_its_length() -> None:
    assert TaskCost().most(hazards()) == 60.0
    assert math.isinf(TaskCost().most(addition(4)))
    assert LengthCost(2).most(addition(4)) == addition(4).max_decisions - 2


# ---------------------------------------------------------------------------------------------------- certificate
def test_the_verdict_says_its_numbers_and_leaves_faults_out() -> None:
    record = pulls([0.0, 1.0, 0.0, 1.0, 9.0])
    mask = record.mask.clone()
    mask[4] = False  # an infrastructure fault has left the test
    said = CostCertificate(limit=1.4, failure=0.2, bound=ProductBound(), largest=2.0)(record.with_columns(mask=mask))
    assert said.numbers["mean"] == 0.5
    assert said.numbers["episodes"] == 4
    assert said.numbers["upper"] == pytest.approx(2.0 - (0.2 * 2.0 * 1.0 * 2.0 * 1.0) ** 0.25)
    assert said.holds
    assert "at most 1.4" in said.statement
    refused = CostCertificate(limit=0.6, failure=0.1)(record.with_columns(mask=mask))
    assert not refused.holds
    assert "not shown" in refused.statement


def test_rows_of_one_episode_are_one_cost() -> None:
    record = pulls([1.0, 1.0, 2.0, 4.0]).with_columns(episode=torch.tensor([7, 7, 8, 9]))
    said = CostCertificate(limit=9.0, largest=9.0)(record)
    assert (said.numbers["episodes"], said.numbers["mean"]) == (3.0, pytest.approx(8 / 3))


BOTH = [(addition(4), LANGUAGE, LengthCost()), (hazards(), CONTROL, TaskCost())]


@pytest.mark.parametrize(("task", "world", "cost"), BOTH)
def test_one_certificate_serves_tokens_and_control(task, world, cost) -> None:
    actor = built(small_actor(task.spec), task.spec)
    recipe = hc_rlhf.recipe(world, CostCertificate(limit=50.0, num_starts=8, largest=60.0), cost=cost)
    states = [part.init(Scene(task)) for part in recipe.rewards]
    said = evaluation.certified(recipe.certificate, recipe.rewards, actor, task, NoModels(), states)
    assert said.holds
    assert said.numbers["episodes"] == 8
    strict = CostCertificate(limit=-1.0, num_starts=8)
    assert not evaluation.certified(strict, (LengthCost(0),), actor, task, NoModels(), [{}]).holds


def test_a_file_with_few_held_out_prompts_is_refused_before_anything_is_computed(tmp_path) -> None:
    rows = [{"prompt": f"{number} + 1 =", "answer": str(number + 1)} for number in range(5, 245)]
    file = tmp_path / "sums.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(AssayError, match=r"0 held-out prompts besides the .* a certificate needs at least 30"):
        execute(make_plan("hc-rlhf:certified-length", str(file)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_task_without_costs_is_refused() -> None:
    with pytest.raises(AssayError, match="needs costs"):
        CostCertificate()(replace(pulls([0.0, 1.0]), cost=None))


# ---------------------------------------------------------------------------------------------------- pessimism
def test_the_bound_and_the_price_as_written_down_by_hand() -> None:
    part = pessimistic(CostCertificate(limit=1.0, failure=0.1, num_starts=10), now=4.0, later=2.0, rate=0.5)
    scene = Scene()
    state = part.init(scene)
    part(pulls([0.0, 1.0, 2.0, 3.0, 4.0]), scene, state)
    seen = averages(scene.metrics)
    factor = 4 * 1.533206 / math.sqrt(5) + 2 * 1.383029 / math.sqrt(10)
    assert seen["cost"] == 2.0
    assert seen["cost_bound"] == pytest.approx(2.0 + factor * math.sqrt(2.5), abs=1e-4)
    assert state["multiplier"] == pytest.approx(0.5 * (seen["cost_bound"] - 1.0))


def test_without_pessimism_it_is_the_plain_multiplier() -> None:
    part, plain = pessimistic(CostCertificate(limit=1.0), 0.0, 0.0, rate=0.3), Multiplier(1.0, Ascent(0.3))
    states = part.init(ALONE), plain.init(ALONE)
    for costs in ([3.0, 2.0], [0.0, 0.0], [4.0, 1.0], [0.0, 5.0]):
        part(pulls(costs), ALONE, states[0])
        plain(pulls(costs), ALONE, states[1])
        assert states[0]["multiplier"] == pytest.approx(states[1]["multiplier"])
    merged = part(pulls([3.0, 1.0, 2.0]), ALONE, {"multiplier": 1.0})
    assert merged.column("cost_advantage").squeeze(1).tolist() == [1.5, -1.5, 0.0]
    assert merged.column("advantage").squeeze(1).tolist() == [-0.75, 0.75, 0.0]


def test_the_cost_advantage_is_against_the_groups_others_and_equal_costs_give_none() -> None:
    part, state = pessimistic(now=0.0, later=0.0), {"multiplier": 2.0}
    merged = part(pulls([0.0, 4.0, 1.0, 1.0], members=2), ALONE, dict(state))
    assert merged.column("cost_advantage").squeeze(1).tolist() == [-4.0, 4.0, 0.0, 0.0]
    for costs in ([2.0, 2.0, 2.0], [2.0]):
        same = pessimistic()(pulls(costs, members=len(costs)), ALONE, dict(state)).column("cost_advantage")
        assert torch.isfinite(same).all()
    assert not pessimistic()(pulls([2.0] * 3), ALONE, dict(state)).column("cost_advantage").any()
    nothing = pulls([1.0, 2.0]).with_columns(mask=torch.zeros(2, 1, dtype=torch.bool))
    scene = Scene()
    assert not pessimistic()(nothing, scene, dict(state)).column("advantage").any()
    assert averages(scene.metrics)["cost"] == 0.0


def test_costs_that_spread_are_priced_above_costs_that_do_not() -> None:
    """Two arms of equal mean cost: only the one that varies is pushed down on average."""
    cost, factor = torch.tensor([0.0, 4.0, 2.0, 2.0]).double(), 1.0
    spread = augmented_cost(cost, 2.0, float(cost.std(correction=0)), factor)
    assert float(spread[:2].mean()) > float(spread[2:].mean())
    assert torch.equal(augmented_cost(cost, 2.0, 0.0, factor), cost)


def test_a_short_training_in_both_worlds_has_a_price_and_goes_on() -> None:
    for task, world, cost in BOTH:
        recipe = hc_rlhf.recipe(world, CostCertificate(limit=-1.0), cost=cost)
        recipe = recipe.set("rollout.num_starts", 2).set("rollout.group_size", 2)
        loop = Loop(recipe, task, seed=0, num_steps=2)
        metrics = [loop.step().metrics for _ in range(2)]
        assert 0 < metrics[0]["multiplier"] < metrics[1]["multiplier"]


def test_few_trials_hand_out_fewer_unsafe_policies_with_the_test_than_without() -> None:
    one = hc_rlhf.recipe(TABLE, CostCertificate(claims.LIMIT, num_starts=50, largest=1.0), rate=0.3)
    plain = replace(hc_rlhf.recipe(TABLE, one.certificate, 0.0, 0.0, 0.3), certificate=None)
    ours, theirs = (
        probes.handed_out(each, claims.BANDIT, claims.LIMIT, trials=6, steps=40, pulls=32, seed=1)
        for each in (one, plain)
    )
    assert theirs.solved == 1.0
    assert ours.unsafe <= theirs.unsafe
