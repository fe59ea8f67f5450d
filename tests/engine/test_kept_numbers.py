"""Numbers beside the parameters (moments of inputs) come back with weights, to the bit: checkpoints, starts, phases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.core import store
from assay.core.recipe import Recipe
from assay.engine.engine import Engine
from assay.engine.flat import weights_of
from assay.engine.placement import Placement
from assay.recipes import sac
from assay.recipes.presets import CONTINUOUS
from assay.runs.run import train
from assay.runs.warm_start import start_of, weights_from
from assay.tasks.control.pendulum import pendulum

SPEC = pendulum().spec


def standardised() -> Recipe:
    """sac on standardised observations, small."""
    settings = replace(CONTINUOUS.off_policy, standardised=True)
    recipe = sac(replace(CONTINUOUS, off_policy=settings))
    return recipe.set("actor.hidden", (8,)).set("q.hidden", (8,))


def engine_of(recipe: Recipe, seed: int = 0) -> Engine:
    return Engine(recipe, SPEC, seed, Placement())


def with_kept(engine: Engine, of: tuple[str, ...]) -> dict[str, Tensor]:
    """Sets the kept numbers of these models to random ones; returns them by full name."""
    draw, found = torch.Generator().manual_seed(3), {}
    for name in of:
        for own, module in engine.flats[name].keeping.items():
            kept = {key: torch.rand(value.shape, generator=draw) + 0.5 for key, value in module.kept().items()}
            module.keep(kept)
            found |= {f"{name}.{own}.{key}": value for key, value in kept.items()}
    return found


def kept_of(engine: Engine, name: str) -> dict[str, Tensor]:
    keeping = engine.flats[name].keeping.items()
    return {f"{own}.{key}": value for own, module in keeping for key, value in module.kept().items()}


def all_weights(engine: Engine, names: tuple[str, ...]) -> dict[str, Tensor]:
    return {f"{name}.{own}": value for name in names for own, value in weights_of(engine.models[name]).items()}


def test_weights_of_a_model_have_its_kept_numbers_and_load_sets_them() -> None:
    recipe = standardised()
    first, second = engine_of(recipe), engine_of(recipe, 1)
    given = with_kept(first, ("actor", "q"))
    assert given
    weights = all_weights(first, ("actor", "q"))
    assert {own: weights[own].tolist() for own in given} == {own: value.tolist() for own, value in given.items()}
    second.load(weights, recipe)
    for model in ("actor", "q"):
        ours, theirs = kept_of(second, model), kept_of(first, model)
        assert all(torch.equal(ours[own], value) for own, value in theirs.items())


def test_a_target_network_begins_with_the_kept_numbers_of_its_model_or_with_its_own() -> None:
    recipe = standardised()
    engine, other = engine_of(recipe), engine_of(recipe, 1)
    with_kept(engine, ("actor", "q"))
    other.load(all_weights(engine, ("actor", "q")), recipe)
    expected = kept_of(engine, "q")
    assert all(torch.equal(value, expected[own]) for own, value in kept_of(other, "q_target").items())
    apart = {f"q_target.{own}": value + 1.0 for own, value in expected.items()}
    other.load(all_weights(engine, ("actor", "q")) | apart, recipe)
    assert all(torch.equal(value, expected[own] + 1.0) for own, value in kept_of(other, "q_target").items())


def test_a_module_whose_kept_numbers_are_incomplete_stays_as_it_is() -> None:
    recipe = standardised()
    engine, other = engine_of(recipe), engine_of(recipe, 1)
    given = with_kept(engine, ("q",))
    first, *rest = sorted(given)
    before = kept_of(other, "q")
    other.load({own: given[own] for own in rest}, recipe)
    layer = first.rsplit(".", 1)[0]
    after = kept_of(other, "q")
    for own, value in after.items():
        stays = f"q.{own}".startswith(f"{layer}.")
        assert torch.equal(value, before[own] if stays else given[f"q.{own}"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps, whose models have met data."""
    out = tmp_path_factory.mktemp("kept") / "run"
    small: dict[str, Any] = {"source.warmup": 16, "source.batch": 8, "source.updates": 2}
    recipe = standardised()
    for path, value in small.items():
        recipe = recipe.set(path, value)
    train(recipe, "pendulum", steps=4, out=out, evaluations=0)
    return out


def test_a_checkpoint_and_a_start_from_it_bring_the_numbers_back_to_the_bit(folder: Path) -> None:
    recipe, saved = standardised(), store.load(folder / "checkpoints")
    assert saved is not None
    models = saved.tree["loop"]["engine"]["models"]
    restored, begun = engine_of(recipe, 1), engine_of(recipe, 2)
    for name, flat in restored.flats.items():
        flat.restore(models[name])
    begun.load(weights_from(start_of(str(folder)), begun, recipe.copies), recipe)
    fresh = kept_of(engine_of(recipe), "q")
    for engine in (restored, begun):
        found = kept_of(engine, "q")
        for own, value in found.items():
            layer, key = own.rsplit(".", 1)
            assert torch.equal(value, models["q"][layer][key])
            assert not torch.equal(value, fresh[own])
