"""Trajectory transformers: their statistics, what they do without a past, and runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from assay.core.errors import AssayError
from assay.core.slots import Ask
from assay.method import recipes
from assay.models import CausalStack, Trajectory
from assay.parts import Log
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum

BODY = Trajectory(CausalStack(8, 1, 2), length=4)


def test_the_target_is_the_best_return_and_the_scale_the_largest_return_to_go() -> None:
    reward = torch.tensor([1.0, 2.0, 3.0, -9.0, 4.0, 8.0])
    last = torch.tensor([False, False, True, False, True, True])
    filled = BODY.of_rewards(reward, last)
    assert (filled.target, filled.scale) == (8.0, 8.0)
    assert replace(BODY, target=3.0).of_rewards(reward, last).target == 3.0
    assert BODY.of_rewards(torch.zeros(2), torch.tensor([False, True])).scale == 1.0
    assert not filled.needs_rewards


def test_a_run_has_both_kinds_of_statistics_and_is_a_function_of_its_plan(tmp_path: Path) -> None:
    recipe = recipes.decision_transformer(log=Log(4), length=3).set("stack.width", 8).set("source.updates", 1)
    runs: list[Any] = [assay.train(recipe, cartpole(), steps=2, evaluations=0, out=tmp_path / "whole")]
    runs.append(assay.train(recipe, cartpole(), steps=2, evaluations=0, out=tmp_path / "again"))
    body = runs[0].policy.body.settings
    assert body.target == body.scale > 1.0
    assert len(body.moments) == 2
    for one, two in zip(*(run.policy.parameters() for run in runs), strict=True):
        assert torch.equal(one, two)


def test_without_a_past_it_decides_as_in_the_first_step_of_an_episode() -> None:
    torch.manual_seed(0)
    net: Any = BODY.outputs(cartpole().spec, Ask((2,)))
    shown = cartpole().remembering(BODY.reads_history)
    context = shown.simulate(3).reset(torch.arange(3).numpy())
    torch.testing.assert_close(net(context), net({"observation": context["observation"]}))


def test_tasks_and_critics_that_it_cannot_read_are_refused() -> None:
    with pytest.raises(AssayError, match="outputs of decisions"):
        BODY.outputs(pendulum().spec, Ask(action=True))
    with pytest.raises(AssayError, match="multiple of 2 x heads"):
        CausalStack(9, 1, 2)
