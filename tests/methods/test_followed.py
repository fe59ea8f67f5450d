"""Settings that follow a metric or an anchor: what they remember is saved, and a resumed run is bitwise the same."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from assay import recipes
from assay.core.recipe import Recipe
from assay.engine.engine import Placement
from assay.engine.loop import Loop
from assay.methods import r2vpo, siren
from assay.parts.rollouts.episodes import Episodes
from assay.recipes.presets import BIGRAMS
from assay.runs import catalogue


def small(recipe: Recipe) -> Recipe:
    return replace(recipe, rollout=Episodes(num_starts=8, group_size=4))


def loop_of(recipe: Recipe, placement: Placement = Placement()) -> Loop:
    return Loop(small(recipe), catalogue.find_task("many-ways"), seed=0, num_steps=4, placement=placement)


@pytest.mark.parametrize(("method", "name"), [(siren, "anchor"), (r2vpo, "multiplier")])
def test_a_resumed_run_remembers_it(method: Any, name: str) -> None:
    recipe = method.recipe(BIGRAMS).set("epochs", 2)
    whole = loop_of(recipe)
    for _ in range(2):
        whole.step()
    saved = copy.deepcopy(whole.snapshot())
    other = loop_of(recipe)
    other.restore(saved)
    assert saved["states"]["credit"][-1][name] == other.states["credit"][-1][name]
    assert saved["states"]["credit"][-1] != loop_of(recipe).states["credit"][-1]
    for one in (whole, other):
        one.step()
    assert torch.equal(whole.engine.flats["actor"].values, other.engine.flats["actor"].values)
    assert whole.states["credit"][-1] == other.states["credit"][-1]


def test_the_anchor_is_the_first_batch_and_micro_batches_change_nothing() -> None:
    steps = []
    for size in (0, 5):
        loop = loop_of(siren.recipe(BIGRAMS, beta=5.0, peak=0.0), Placement(micro_batch=size))
        metrics = [loop.step().metrics for _ in range(3)]
        assert metrics[0]["anchor_distance"] == 0.0
        assert loop.states["credit"][-1]["anchor"] == metrics[0]["nucleus_entropy"]
        steps.append(loop.engine.flats["actor"].values.clone())
    torch.testing.assert_close(*steps, rtol=1e-4, atol=1e-5)


def test_the_multiplier_follows_the_variance_of_the_updates() -> None:
    loop = loop_of(r2vpo.recipe(BIGRAMS, target=1e-3).set("epochs", 4))
    first = loop.step().metrics
    assert first["multiplier"] == 1.0
    assert loop.step().metrics["multiplier"] == pytest.approx(1.0 + 0.5 * (first["ratio_variance"] / 1e-3 - 1.0))
    plain = loop_of(recipes.grpo(BIGRAMS))
    assert plain.states["credit"] == [{}]
