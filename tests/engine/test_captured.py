"""Gradients of graphs: the same numbers as without, and stages that a graph cannot hold compute as ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from assay.core.record import Loss
from assay.core.schedules import Linear
from assay.engine.captured import CapturedEngine
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.parts.objectives.pathwise import MaximizeSoftQ
from assay.runs.plan import make_plan

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ("cpu", pytest.param("cuda", marks=CUDA))
CASES = ("sac pendulum", "td3 pendulum", "ppo pendulum", "dqn cartpole", "a2c cartpole")


def loop_of(case: str, device: str, captured: bool, **changed: Any) -> Loop:
    method, task = case.split()
    small = {"rollout.steps": 8, "source.minibatches": 2} if case == "ppo pendulum" else {}
    small |= {"source.warmup": 8, "source.updates": 6} if "Replay" in str(make_plan(method, task).recipe.source) else {}
    plan = make_plan(method, task, settings=small)
    recipe = replace(plan.recipe, **changed)
    loop = Loop(recipe, plan.task, seed=3, num_steps=plan.steps, placement=Placement(device, captured=False))
    if captured:
        spec = loop.task.spec
        loop.engine = CapturedEngine(loop.recipe, spec, 3, Placement(device))
        loop.begin({})
    return loop


def values(loop: Loop) -> torch.Tensor:
    return torch.cat([flat.values.double().cpu() for flat in loop.engine.flats.values()])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_weights_and_metrics_are_those_without_graphs(case: str, device: str) -> None:
    plain, ours = (loop_of(case, device, captured) for captured in (False, True))
    start = values(plain)
    kept = [[loop.step().metrics for _ in range(4)][-1] for loop in (plain, ours)]
    moved = float((values(plain) - start).norm())
    assert moved > 0.0
    assert float((values(plain) - values(ours)).norm()) <= (1e-4 if device == "cuda" else 1e-9) * moved
    names = [name for name in kept[0] if name.startswith(("loss/", "gradient_norm/"))]
    assert names
    assert {name: kept[1][name] for name in names} == pytest.approx({name: kept[0][name] for name in names}, rel=1e-3)
    assert set(kept[0]) == set(kept[1])


def test_a_gpu_takes_graphs_for_vectors_unless_the_placement_says_no() -> None:
    assert not isinstance(loop_of("sac pendulum", "cpu", captured=False).engine, CapturedEngine)
    assert not CapturedEngine(*fresh("sac pendulum")).apart


def fresh(case: str) -> Any:
    loop = loop_of(case, "cpu", captured=False)
    return loop.recipe, loop.task.spec, 3, Placement()


def test_a_loss_with_a_schedule_is_computed_as_ever() -> None:
    recipe, *rest = fresh("ppo cartpole")
    actor, value = recipe.stages
    moving = replace(actor, regularizers=(replace(actor.regularizers[0], coefficient=Linear(0.01, 0.0)),))
    assert CapturedEngine(replace(recipe, stages=(moving, value)), *rest).apart == {actor.name}


class Reading(MaximizeSoftQ):
    """A loss that asks the host."""

    def __call__(self, batch: Any, view: Any) -> Loss:
        found = super().__call__(batch, view)
        assert float(found.sum.detach()) == float(found.sum.detach())
        return found


@CUDA
def test_a_loss_that_reads_a_number_is_computed_as_ever() -> None:
    recipe = make_plan("sac", "pendulum").recipe
    stages = tuple(
        replace(one, objective=tuple(Reading() if type(term) is MaximizeSoftQ else term for term in one.objective))
        for one in recipe.stages
    )
    plain, ours = (loop_of("sac pendulum", "cuda", captured, stages=stages) for captured in (False, True))
    for loop in (plain, ours):
        for _ in range(4):
            loop.step()
    assert isinstance(ours.engine, CapturedEngine)
    assert ours.engine.apart == {"actor"}
    assert float((values(plain) - values(ours)).abs().max()) <= 1e-4
