"""Control on a device: whole steps of methods, evaluation and resume, on the device of tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.placement import Placement, task_on
from assay.engine.views import uniform_on_device
from assay.ops import random
from assay.parts.sources.replay import integers
from assay.runs import checks
from assay.runs.environments import normalised
from assay.runs.plan import make_plan
from tests.far_device import WAITS, far_device, near, register

needs_far = pytest.mark.skipif(not register(), reason="runs in a process of its own (test_devices.py)")
CASES = [
    "ppo cartpole",
    "ppo pendulum",
    "a2c cartpole",
    "dqn cartpole",
    "sac pendulum",
    "td3 pendulum",
    "grpo cartpole",
]


def loop_of(case: str, device: str = "cpu", seed: int = 3) -> Loop:
    method, task = case.split()
    small = {"rollout.steps": 8, "source.minibatches": 2} if case == "ppo pendulum" else {}
    plan = make_plan(method, task, settings=small)
    recipe = normalised(plan.recipe, plan.task, ("obs", "reward")) if method == "a2c" else plan.recipe
    return Loop(recipe, plan.task, seed=seed, num_steps=plan.steps, placement=Placement(device=device))


def weights(loop: Loop) -> list[torch.Tensor]:
    return [near(flat.values).clone() for flat in loop.engine.flats.values()]


@needs_far
@pytest.mark.parametrize("case", CASES)
def test_steps_on_a_device_are_those_of_the_cpu(case: str) -> None:
    here = loop_of(case)
    kept = [here.step().metrics for _ in range(2)][-1]
    with far_device() as device:
        there = loop_of(case, device)
        metrics = [there.step().metrics for _ in range(2)][-1]
        assert all(flat.values.device.type == "far" for flat in there.engine.flats.values())
    for one, other in zip(weights(here), weights(there), strict=True):
        assert float((one - other).abs().max()) <= 1e-6
    assert metrics["decisions"] == kept["decisions"]
    assert metrics.get("reward") == pytest.approx(kept.get("reward"), abs=1e-5)


@needs_far
def test_nothing_waits_for_the_device_inside_a_fragment() -> None:
    waits = {}
    for steps in (40, 80):
        plan = make_plan("ppo", "cartpole", settings={"rollout.steps": steps})
        with far_device() as device:
            loop = Loop(plan.recipe, plan.task, seed=0, num_steps=9, placement=Placement(device=device))
            loop.step()
            WAITS.clear()
            loop.step()
            waits[steps] = WAITS.total()
    assert waits[40] == waits[80] > 0


@needs_far
@pytest.mark.parametrize("method", ["sac", "td3"])
def test_updates_from_replay_copy_nothing_to_the_host(method: str) -> None:
    copies = {}
    for updates in (2, 6):
        plan = make_plan(method, "pendulum", settings={"source.updates": updates, "source.warmup": 8})
        with far_device() as device:
            loop = Loop(plan.recipe, plan.task, seed=0, num_steps=9, placement=Placement(device=device))
            loop.step()
            WAITS.clear()
            loop.step()
            copies[updates] = WAITS["to the host"]
    assert copies[2] == copies[6]


@needs_far
def test_random_numbers_of_updates_are_the_same_on_every_device() -> None:
    draw, rows = Draw(5, (3, 1)), torch.tensor([4, 0, 9])
    numbers = random.as_open_float32(random.uniform(draw, rows.numpy()[:, None], np.arange(7)[None]))
    assert torch.equal(uniform_on_device(draw, rows, 7), numbers)
    with far_device() as device:
        far = near(integers(draw, 1000, 64, torch.zeros(1, device=device)))
    assert torch.equal(far, integers(draw, 1000, 64, rows))


@needs_far
@pytest.mark.parametrize("case", ["ppo pendulum", "a2c cartpole", "sac pendulum"])
def test_a_run_on_a_device_resumes_bitwise_from_a_checkpoint_on_the_host(case: str) -> None:
    with far_device() as device:
        first = loop_of(case, device)
        first.step()
        saved = near(first.snapshot())
        second = loop_of(case, device)
        second.restore(saved)
        first.step(), second.step()
    assert all(torch.equal(one, other) for one, other in zip(weights(first), weights(second), strict=True))


@needs_far
def test_an_evaluation_on_a_device_has_the_scores_of_the_cpu() -> None:
    here = evaluation.scores(loop_of("ppo pendulum").policy, make_plan("ppo", "pendulum").task, num=4)
    with far_device() as device:
        there = loop_of("ppo pendulum", device)
        found = evaluation.scores(there.policy, there.task, num=4)
    assert found == pytest.approx(here, abs=1e-3)


def test_the_cpu_keeps_its_own_simulations() -> None:
    task = make_plan("ppo", "cartpole").task
    assert task_on(task, Placement()) is task
    assert Loop(make_plan("ppo", task).recipe, task, seed=0, num_steps=1).task is task


@pytest.mark.parametrize("task", ["hazards", "pointmaze-umaze", "gridworld"])
def test_a_task_of_the_cpu_is_refused_in_a_sentence_that_says_which_are_not(task: str) -> None:
    found = make_plan("ppo", task).task
    with pytest.raises(AssayError, match=r"steps its simulations on the CPU.*cartpole, pendulum.*--device cpu"):
        checks.check_portable(found)
    checks.check_portable(make_plan("ppo", "cartpole").task)


@needs_far
@pytest.mark.parametrize(("method", "part"), [("td3-bc", "Logged"), ("wsrl:rlpd", "Retained")])
def test_parts_that_keep_experience_on_the_cpu_are_refused_by_name(method: str, part: str) -> None:
    plan = make_plan(method, "pendulum")
    with pytest.raises(AssayError, match=rf"{part}.* on the CPU"):
        checks.check_parts_on_device(plan.recipe, Placement(device="far:0"), plan.task)
