"""Constraints in both worlds: multipliers, projection, cost critics and budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.slots import ALONE
from assay.engine.loop import Loop
from assay.methods.safe_rl_review import projection
from assay.parts.constraints.cost import CostCritic, CostToGo, centred, episode_cost
from assay.parts.constraints.multiplier import Ascent, Multiplier, Pid
from assay.parts.credit.cost import EndAtCost
from assay.parts.credit.temporal import RewardToGo
from assay.parts.rewards.cost import LengthCost, TaskCost
from assay.recipes.constrained import constrained, safe_ppo, with_cost_critic
from assay.recipes.presets import CONTROL, EVERY, LANGUAGE
from assay.runs import catalogue
from assay.tasks.control.hazards import hazards
from tests.methods.streams import normal, stream_of


def priced(costs: list[float], advantage: Tensor | None = None) -> Experience:
    """One terminal row with these costs."""
    batch = stream_of(len(costs), terminal=[len(costs) - 1])
    cost = torch.tensor([*costs, 0.0], dtype=torch.float64).view(1, -1, 1)
    return replace(batch, cost=cost).add(
        {"advantage": normal(7, 1, len(costs) + 1) if advantage is None else advantage}
    )


def test_pid_is_the_papers_controller() -> None:
    part, before, total = Multiplier(2.0, Pid(0.3, 0.1, 0.5)), None, 0.0
    state = part.init(ALONE)
    for cost in (5.0, 7.0, 1.0, 0.0, 4.0):
        growth = 0.0 if before is None else max(0.0, cost - before)
        total, before = max(0.0, total + cost - 2.0), cost
        expected = max(0.0, 0.3 * (cost - 2.0) + 0.1 * total + 0.5 * growth)
        part(priced([cost, 0.0]), ALONE, state)
        assert state["multiplier"] == pytest.approx(expected)


def test_projection_is_the_nearest_allowed_advantage() -> None:
    """Against a search over all multiples and random directions: nothing allowed is nearer."""
    part, batch = projection(limit=1.0, rate=0.2), priced([3.0, 0.0, 1.0, 0.5, 2.0])
    state = part.init(ALONE)
    part(batch, ALONE, state)
    merged, mask = part(batch, ALONE, state), batch.mask
    a, cost, new = (
        c[mask] for c in (batch.column("advantage"), merged.column("cost_advantage"), merged.column("advantage"))
    )
    level = episode_cost(batch, 0)
    assert level is not None
    asked = -0.2 * (level - 1.0)
    assert float((new * cost).mean()) <= asked + 1e-9
    for seed in range(300):
        other = new + 0.3 * normal(seed, len(a))
        if float((other * cost).mean()) <= asked:
            assert float((other - a).square().sum()) >= float((new - a).square().sum()) - 1e-9


@pytest.mark.parametrize("part", [Multiplier(9.0), Multiplier(9.0, Pid()), projection(9.0, rate=10.0)])
def test_slack_leaves_the_advantage_as_it_is(part: Any) -> None:
    batch, state = priced([0.5, 0.0, 0.5]), part.init(ALONE)
    part(batch, ALONE, state)
    assert torch.allclose(part(batch, ALONE, state).column("advantage"), batch.column("advantage"))


def test_no_decision_and_no_cost_stay_finite() -> None:
    batch = priced([0.0, 0.0])
    empty = replace(batch, mask=torch.zeros_like(batch.mask))
    for part in (Multiplier(rule=Pid()), projection()):
        for each in (batch, empty):
            state = part.init(ALONE)
            part(each, ALONE, state)
            assert torch.isfinite(part(each, ALONE, state).column("advantage")).all()


def test_a_perfect_cost_critic_sees_no_advantage_in_costs_that_are_certain() -> None:
    batch = priced([1.0, 2.0, 3.0]).add({"cost_value": torch.tensor([[6.0, 5.0, 3.0, 0.0]], dtype=torch.float64)})
    columns = CostCritic(1.0, 0.9)(batch, 0)
    assert torch.allclose(columns["cost_advantage"], torch.zeros(1, 4).double())
    assert torch.allclose(columns["cost_return"], torch.tensor([[6.0, 5.0, 3.0, 0.0]], dtype=torch.float64))
    to_go = CostToGo(1.0)(batch, 0)["cost_advantage"]
    assert torch.allclose(to_go, centred(torch.tensor([[6.0, 5.0, 3.0, 0.0]]).double(), batch))


def test_a_spent_budget_ends_the_episode() -> None:
    batch = replace(priced([1.0, 0.0, 1.0, 1.0, 0.0]), reward=torch.ones(1, 6).double())
    cut = EndAtCost(limit=1.0, penalty=5.0)(batch)
    assert cut.mask[0].tolist() == [True] * 3 + [False] * 3
    assert cut.terminal[0].tolist() == [False, False, True, False, False, False]
    assert RewardToGo(1.0)(cut).column("return")[0, :3].tolist() == [-2.0, -3.0, -4.0]
    free = EndAtCost(limit=9.0)(batch)
    assert torch.equal(free.mask, batch.mask)
    assert torch.equal(free.terminal, batch.terminal)


def test_length_costs_follow_the_tasks_own() -> None:
    batch = priced([1.0, 0.0, 1.0, 1.0])
    both = LengthCost(limit=3)(batch, hazards(), 0)
    assert both.cost is not None
    assert both.cost[0, :, 1].tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert torch.equal(both.cost[..., 0], batch.cost[..., 0])


SMALL = {"rollout.num_starts": 4, "rollout.group_size": 4, "rollout.num_envs": 8, "actor.width": 16, "value.width": 16}


@pytest.mark.parametrize(
    "constraint", [Multiplier(1.0), Multiplier(rule=Pid()), projection()], ids=["ascent", "pid", "projection"]
)
@pytest.mark.parametrize(
    ("base", "world", "task", "cost"),
    [("ppo", CONTROL, "hazards", TaskCost()), ("grpo", LANGUAGE, "addition-1", LengthCost(2))],
)
def test_the_same_constraint_serves_tokens_and_torques(
    constraint: Any, base: str, world: Any, task: str, cost: Any
) -> None:
    recipe = constrained(getattr(recipes, base)(world), constraint, cost)
    for path, value in SMALL.items():
        try:
            recipe = recipe.set(path, value)
        except AssayError:
            continue
    loop = Loop(recipe, catalogue.find_task(task), seed=0, num_steps=5)
    costs = [loop.step().metrics.get("cost", 0.0) for _ in range(5)]  # the first episodes end in the fourth
    assert all(np.isfinite(costs))
    assert max(costs) > 0.0


def test_grpo_pays_for_length_with_the_multiplier() -> None:
    recipe = constrained(recipes.grpo(LANGUAGE), Multiplier(0.0, Ascent(10.0)), LengthCost(2))
    for path, value in SMALL.items():
        try:
            recipe = recipe.set(path, value)
        except AssayError:
            continue
    loop = Loop(recipe, catalogue.find_task("addition-1"), seed=0, num_steps=2)
    loop.step()
    fresh = loop.step().fresh
    assert fresh is not None
    first = fresh.mask & (fresh.mask.cumsum(1) == 1)
    credit, length = (fresh.column("advantage") * first).sum(1), fresh.mask.sum(1)
    assert int(length.min()) < int(length.max())
    assert float(credit[length == length.max()].mean()) < float(credit[length == length.min()].mean())


def test_a_task_without_costs_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(AssayError, match="'cartpole' gives no costs"):
        Loop(safe_ppo(), catalogue.find_task("cartpole"), seed=0, num_steps=1)
    lengths = constrained(recipes.ppo(CONTROL), Multiplier(), LengthCost(2)).set("rollout.num_envs", 2)
    with pytest.raises(AssayError, match="not of fragments"):
        Loop(lengths, catalogue.find_task("cartpole"), seed=0, num_steps=1).step()


def test_the_cost_of_long_episodes_is_not_that_of_a_fragment() -> None:
    """Episodes of 60 decisions in fragments of 8: most batches end none, and the mean cost is that of whole ones."""
    recipe = safe_ppo().set("rollout.num_envs", 8).set("rollout.steps", 8)
    loop = Loop(recipe, hazards(), seed=0, num_steps=20)
    levels = [step.metrics["cost"] for step in (loop.step() for _ in range(20)) if "cost" in step.metrics]
    assert 0 < len(levels) < 20
    played = hazards().play(loop.actor, np.arange(200), np.zeros(200, np.int64), Draw(1), split=0, greedy=False)
    assert played.cost is not None
    true = float((played.cost[..., 0] * played.mask).sum(1).mean())
    assert 0.2 * true < np.mean(levels) < 5.0 * true


@pytest.mark.parametrize("world", EVERY, ids=lambda one: one.name)
def test_a_cost_critic_can_be_added_in_every_world(world: Any) -> None:
    recipe = constrained(with_cost_critic(recipes.ppo(world), world), Multiplier(credit=CostCritic()))
    recipe.check()
    assert safe_ppo(world).critics["cost_value"] == world.value
