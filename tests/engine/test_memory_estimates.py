"""What cannot fit into memory is refused before it is asked for, and what runs today is not refused."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import AssayError
from assay.core.spaces import Box, Discrete, Spec
from assay.engine import memory
from assay.engine.loop import Loop
from assay.engine.memory import available_memory, check_memory, column_bytes, estimates, gib
from assay.runs.plan import make_plan

GIB = 2**30


def plan_of(method: str, task: str, settings: dict[str, Any]) -> Any:
    return make_plan(method, task, settings=settings, steps=1000)


@pytest.mark.parametrize(
    ("method", "task", "path", "value"),
    [
        ("ppo", "cartpole", "rollout.num_envs", 10**13),
        ("ppo", "cartpole", "rollout.steps", 10**12),
        ("ppo", "cartpole", "actor.body.hidden", (10**6, 10**6)),
        ("dqn", "cartpole", "source.batch", 10**12),
        ("grpo", "countdown", "rollout.group_size", 10**11),
        ("grpo", "countdown", "actor.body.width", 10**8),
    ],
)
def test_the_setting_is_named(method: str, task: str, path: str, value: Any) -> None:
    plan = plan_of(method, task, {path: value})
    with pytest.raises(AssayError, match=rf"not enough memory.*{path} = .*GiB are available. Lower {path}"):
        Loop(plan.recipe, plan.task, seed=0, num_steps=1000)


def test_the_numbers_are_those_of_rows_and_columns() -> None:
    spec = Spec(Box((0.0,) * 4, (1.0,) * 4), Discrete(2), 500)
    assert column_bytes(spec) == 4 * 4 + 8 + 4 + 4 + 3
    plan = plan_of("ppo", "cartpole", {"rollout.num_envs": 1000, "rollout.steps": 99})
    (rollout,) = [each for each in estimates(plan.recipe, plan.task.spec, 10) if each.path.startswith("rollout")]
    assert (rollout.path, rollout.bytes) == ("rollout.num_envs", 1000 * 100 * column_bytes(plan.task.spec))


def test_a_ring_takes_what_is_gathered_at_most() -> None:
    plan = plan_of("dqn", "cartpole", {"source.capacity": 10**15})
    check_memory(plan.recipe, plan.task.spec, 10)
    with pytest.raises(AssayError, match=r"source.capacity"):
        check_memory(plan.recipe, plan.task.spec, 10**12)


@pytest.mark.parametrize(("room", "fits"), [(None, True), (4 * GIB, True), (1000, False)])
def test_what_is_available_decides(room: int | None, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: room)
    plan = plan_of("ppo", "cartpole", {})
    if fits:
        check_memory(plan.recipe, plan.task.spec, 10)
    else:
        with pytest.raises(AssayError, match="not enough memory"):
            check_memory(plan.recipe, plan.task.spec, 10)


def test_this_machine_says_what_is_available() -> None:
    room = available_memory()
    assert room is None or room > GIB // 4


def test_any_number_can_be_said() -> None:
    assert gib(3 * GIB // 2) == "1.5"
    assert gib(10**400).startswith("9,313,225")
