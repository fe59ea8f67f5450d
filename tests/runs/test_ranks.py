"""Ranks: the number of processes changes no bit of a run, and a process that dies ends all of them with its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from assay.core import store
from assay.core.record import State
from assay.engine.loop import Loop
from assay.engine.machine import tuned
from assay.engine.placement import Placement
from assay.parts.rewards.function import FromFunction
from assay.proof.panel import small
from assay.runs import catalogue
from assay.runs.plan import Plan, make_plan
from assay.runs.ranks import Team

SHARDS, STEPS = 4, 2
RECIPES = [
    ("grpo", "addition-1"), ("rloo", "addition-1"), ("dapo", "addition-1"), ("ppo", "addition-1"), ("dpo", "addition-1"),
    ("sft", "addition-1"), ("grpo", "prisoners-dilemma-tokens"), ("ppo", "cartpole"), ("dqn", "cartpole"),
    ("sac", "pendulum"), ("td3", "pendulum"), ("bc", "pendulum"), ("iql", "pendulum"),
]  # fmt: skip


@pytest.fixture(scope="module", params=[2, 4])
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    with Team(request.param) as team:
        yield team


def number_of_words(rows: list[dict[str, Any]]) -> list[float]:
    return [float(len(set(row["completion"]))) for row in rows]


def plan_of(method: str, task: str, ranks: int = 1) -> Plan:
    recipe = small(catalogue.recipe_for(method, catalogue.find_task(task), {}))
    if recipe.rollout is not None and task == "addition-1":
        recipe = replace(recipe, rewards=(FromFunction(number_of_words),))  # untrained answers are never right
    return make_plan(recipe, task, steps=STEPS, warmup=0, placement=Placement(shards=SHARDS, ranks=ranks))


def loop_of(plan: Plan) -> Loop:
    return Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=plan.placement)


def trained(loop: Loop) -> State:
    """The whole state after some steps, and the metrics of each."""
    metrics = [dict(loop.step().metrics) for _ in range(STEPS)]
    return {**loop.snapshot(), "metrics": metrics}


@cache
def alone(method: str, task: str) -> State:
    """What one process trains; its actor has moved."""
    loop = loop_of(plan_of(method, task))
    begun = loop.engine.flats["actor"].values.clone()
    found = trained(loop)
    assert not torch.equal(loop.engine.flats["actor"].values, begun)
    return found


@pytest.mark.parametrize(("method", "task"), RECIPES)
def test_the_number_of_ranks_changes_no_bit(team: Team, method: str, task: str) -> None:
    plan = plan_of(method, task, team.num)
    together = loop_of(plan)
    with tuned(0):
        team.lead(plan, together, {})
        assert store.difference(alone(method, task), trained(together)) == []
