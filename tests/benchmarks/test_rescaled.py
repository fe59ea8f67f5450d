"""Control bases in other units: what is the same by construction, and the page."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.models.bodies.by_data import StandardisedByData
from assay.runs.environments import normalised
from assay.runs.plan import make_plan
from benchmarks import rescaled
from benchmarks.rescaled import Units, recipe_in, task_in


def trained(method: str, units: Units) -> Any:
    """The actor after two small steps."""
    task = task_in(units, method)
    recipe = recipe_in(method, task, units, 0)
    if method in ("sac", "td3"):
        recipe = recipe.set("source.warmup", 8)
    if method != "a2c":
        recipe = recipe.set("source.batch", 16).set("source.updates", 4)
    if method in ("iql", "cql", "td3-bc"):
        recipe = recipe.set("source.episodes", 2)
    loop = Loop(recipe, task, seed=0, num_steps=2)
    for _ in range(2):
        loop.step()
    return loop.engine.models["actor"]


@pytest.mark.parametrize("method", ["sac", "td3", "a2c", "iql", "td3-bc", "cql"])
def test_actions_in_other_units_train_the_same_policy_to_the_bit(method: str) -> None:
    """Half-ranges that are powers of two: no rounding."""
    mine, small, large = (trained(method, Units(one)) for one in (1.0, 2.0**-6, 2.0**7))
    for ours, low, high in zip(mine.parameters(), small.parameters(), large.parameters(), strict=True):
        assert torch.equal(ours, low)
        assert torch.equal(ours, high)


def test_offline_methods_standardise_by_the_data() -> None:
    task = task_in(Units(seen=100.0), "iql")
    recipe = recipe_in("iql", task, Units(seen=100.0, normalize="obs"), 0)
    for model in (recipe.actor, *recipe.critics.values()):
        assert isinstance(model.body, StandardisedByData)  # type: ignore[attr-defined]
        assert len(model.body.mean) == 3  # type: ignore[attr-defined]
    with pytest.raises(AssayError, match="iql reads data"):
        normalised(make_plan("iql", "pendulum").recipe, task, ("reward",))


def test_units_of_a_method_are_those_that_it_can_have() -> None:
    assert not any(units.action != 1.0 for units in rescaled.units_of("dqn"))
    assert not any(units.normalize == "reward" for units in rescaled.units_of("cql"))
    names = [units.name for units in rescaled.units_of("sac")]
    assert len(names) == len(set(names)) == 13


def test_the_page_shows_the_committed_numbers() -> None:
    if not rescaled.RESULTS.is_file():
        assert "Not measured yet" in rescaled.PAGE.read_text()
        return
    assert "\n".join(rescaled.table(json.loads(rescaled.RESULTS.read_text()))) in rescaled.PAGE.read_text()


def test_what_is_missing_is_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of a2c in two units, with two seeds; measured again, nothing is missing."""
    page, numbers = tmp_path / "page.md", tmp_path / "rescaled.json"
    page.write_text(f"Head\n{rescaled.BEGIN}{rescaled.END}Foot\n")
    small = {"PAGE": page, "RESULTS": numbers, "STEPS": {"a2c": 1}, "EPISODES": 2}
    small |= {"units_of": lambda method: (Units(), Units(100.0)), "ProcessPoolExecutor": ThreadPoolExecutor}
    for name, value in small.items():
        monkeypatch.setattr(rescaled, name, value)
    monkeypatch.setattr(sys, "argv", ["rescaled", "--only", "a2c", "--seeds", "2"])
    rescaled.main()
    found = json.loads(numbers.read_text())["a2c"]
    assert {name: set(runs) for name, runs in found.items()} == {"1": {"0", "1"}, "action 100": {"0", "1"}}
    assert "| a2c (1) | action 100 |" in page.read_text()
    assert page.read_text().startswith("Head\n")
    assert page.read_text().endswith("Foot\n")
    assert rescaled.missing(json.loads(numbers.read_text()), ["a2c"], 2) == []
