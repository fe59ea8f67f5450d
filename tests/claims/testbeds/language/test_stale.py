"""Rollouts by an older policy: exactly as many updates old as asked, and after resuming too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Need
from assay.engine.loop import Loop
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.stale import Stale
from assay.runs import catalogue
from assay.runs.plan import make_plan
from assay.runs.progress import Mode
from assay.runs.run import execute


def loop_of(delay: int, steps: int = 6, starts: int = 8) -> Loop:
    task = catalogue.find_task("stale")
    recipe = catalogue.recipe_for("grpo", task, {"rollout.delay": delay, "rollout.num_starts": starts})
    return Loop(recipe, task, seed=1, num_steps=steps)


def logp(loop: Loop, weights: list[torch.Tensor], fresh: Any) -> torch.Tensor:
    """Log-probabilities of the decisions under earlier weights."""
    now = [parameter.detach().clone() for parameter in loop.actor.parameters()]
    with torch.no_grad():
        for parameter, old in zip(loop.actor.parameters(), weights, strict=True):
            parameter.copy_(old)
        result: torch.Tensor = loop.actor.score(fresh, frozenset({Need.LOGP})).logp
        for parameter, old in zip(loop.actor.parameters(), now, strict=True):
            parameter.copy_(old)
    return result


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_recorded_log_probabilities_are_those_of_that_many_updates_ago(delay: int) -> None:
    loop, history = loop_of(delay), []
    for step in range(6):
        history.append([parameter.detach().clone() for parameter in loop.actor.parameters()])
        fresh = loop.step().fresh
        old = logp(loop, history[max(0, step - delay)], fresh)
        torch.testing.assert_close(old, fresh.logp)
        if step and delay < step:
            assert not torch.allclose(logp(loop, history[max(0, step - delay - 1)], fresh), fresh.logp)


def test_a_resumed_run_keeps_the_older_weights() -> None:
    through, stopped = loop_of(3), loop_of(3)
    for _ in range(4):
        through.step()
        stopped.step()
    resumed = loop_of(3)
    resumed.restore(stopped.snapshot())
    for _ in range(2):
        one, other = through.step().fresh, resumed.step().fresh
        assert torch.equal(one.logp, other.logp)
    for one, other in zip(through.actor.parameters(), resumed.actor.parameters(), strict=True):
        assert torch.equal(one, other)


def test_guards_let_a_run_by_older_policies_finish(tmp_path: Path) -> None:
    plan = make_plan("grpo", "stale", seed=1, settings={"rollout.delay": 3, "rollout.num_starts": 8}, steps=8)
    assert execute(plan, tmp_path / "run", mode=Mode.SILENT).curves[-1]["step"] == 8


def test_no_delay_is_the_inner_rollout() -> None:
    task = catalogue.find_task("stale")
    plain = catalogue.recipe_for("grpo", task, {}, preset="bigrams").set("actor.rank", 0)
    assert isinstance(plain.rollout, Episodes)
    both = [Loop(recipe, task, seed=2, num_steps=3) for recipe in (plain, catalogue.recipe_for("grpo", task, {}))]
    for _ in range(3):
        fresh = [loop.step().fresh for loop in both]
        assert torch.equal(fresh[0].logp, fresh[1].logp)


def test_a_negative_delay_is_refused_when_the_plan_is_made() -> None:
    with pytest.raises(AssayError, match="delay is -1"):
        make_plan("grpo", "stale", settings={"rollout.delay": -1})
    with pytest.raises(AssayError):
        Stale(delay=-2)


def test_testbeds_start_without_a_warm_up_and_classic_tasks_with_one() -> None:
    assert make_plan("grpo", "stale").warmup == 0
    assert make_plan("grpo", "stale", preset="classic").warmup == make_plan("grpo", "sorting-5").warmup > 0


def test_an_older_policy_makes_learning_slower() -> None:
    def rate(delay: int) -> float:
        loop = loop_of(delay, 40, 32)
        for _ in range(40):
            loop.step()
        return float(loop.task.exact(loop.policy)["pass_rate"])  # type: ignore[attr-defined]

    assert rate(0) > rate(10) + 0.1


def test_shared_features_keep_the_start_uniform() -> None:
    task: Any = catalogue.find_task("stale")
    for rank in (0, 4):
        recipe = catalogue.recipe_for("grpo", task, {"actor.rank": rank})
        loop = Loop(recipe, task, seed=0, num_steps=1)
        assert task.exact(loop.policy)["pass_rate"] == pytest.approx(0.04)
        assert np.isfinite(loop.step().metrics["reward"])
