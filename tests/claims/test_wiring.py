"""Claims that every method has: they hold of shipped recipes and reject wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from assay.claims import shipped, wiring
from assay.claims.claim import Edit
from assay.claims.find import find_claims
from assay.claims.mutants.edits import raw, replaced
from assay.claims.mutants.find import written
from assay.claims.mutants.settings import setting_mutants
from assay.core.recipe import Recipe
from assay.parts.rollouts import explore
from assay.parts.sources import fresh
from assay.recipes.presets import LANGUAGE
from assay.runs import catalogue


def complaint(key: str, word: str) -> str:
    """The first complaint of the method's wiring claim whose name has a word; '' if it holds."""
    (claim,) = (one for one in find_claims(key).exact if isinstance(one, wiring.Without) and word in one.name)
    finding = claim.run()
    assert finding.holds == (finding.value == 0)
    return "" if finding.holds else finding.expected.removeprefix("no complaint: ")


@contextmanager
def changed(key: str, change: Callable[[Recipe], Recipe]) -> Iterator[None]:
    """The recipe function of a method returns something else inside the block."""
    function = raw(catalogue.methods()[key].recipe)
    assert function is not None
    with replaced(function, lambda recipe, args: change(recipe)):
        yield


# ---------------------------------------------------------------------------------------------------- settings
def test_every_method_has_recorded_settings_and_the_claim_on_them() -> None:
    for key in catalogue.methods():
        claims = [one for one in find_claims(key).exact if wiring.is_record(one)]
        assert len(claims) == 1, key
        assert shipped.recorded_settings(key) is not None, f"run: assay claim {key} --settings"


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("rollout.group_size", 16, "language: rollout.group_size is 16, recorded 8"),
        ("learning_rate", 0.1, "language: stages.policy.optimizer.learning_rate is 0.1, recorded 0.0003"),
        ("steps", 151, "language: steps is 151, recorded 150"),
    ],
)
def test_a_changed_setting_is_told_with_both_values(path: str, value: Any, told: str) -> None:
    with changed("grpo", lambda recipe: recipe.set(path, value)):
        assert told in complaint("grpo", "settings that were recorded")
    assert complaint("grpo", "settings that were recorded") == ""


def test_a_part_that_is_swapped_added_or_removed_changes_the_settings() -> None:
    recipe = catalogue.methods()["dapo"].recipe(LANGUAGE)
    told = shipped.settings_of(recipe)
    without = shipped.difference(shipped.settings_of(replace(recipe, select=None)), told)
    assert without
    assert all(path.startswith("select") and value is None for path, value in without.items())
    swapped = shipped.difference(shipped.settings_of(replace(recipe, source=fresh.FreshDecisions())), told)
    assert swapped["source"] == "FreshDecisions"


def test_numbers_that_a_class_declares_are_settings() -> None:
    assert shipped.settings_of(catalogue.methods()["grpo"].recipe(LANGUAGE))["rollout.by_start"] is True


def test_recorded_settings_of_a_variant_are_those_that_it_has() -> None:
    for one in shipped.shipped_recipes(catalogue.methods()["p3o"]):
        told = wiring.told_settings("p3o", one)
        assert shipped.difference(shipped.settings_of(one.recipe()), told) == {}


def test_every_kind_of_setting_has_mutants_and_each_changes_the_recipe() -> None:
    method = catalogue.methods()["dqn"]
    before, found = shipped.describe_method(method), setting_mutants(method)
    names = " ".join(one.name for one in found)
    assert all(word in names for word in ("copies.target.every 128 -> 256", "source.capacity", "explore", "steps"))
    for one in found:
        with one.install():
            assert shipped.describe_method(method) != before, one.name
    assert shipped.describe_method(method) == before


def test_mutants_of_a_system_leave_out_its_options() -> None:
    method = catalogue.methods()["asyncflow"]
    mutant = next(one for one in setting_mutants(method) if one.name.startswith("options: lag"))
    with mutant.install():
        assert "--lag" in complaint("asyncflow", "without options")
    assert complaint("asyncflow", "without options") == ""


# ---------------------------------------------------------------------------------------------------- gathered steps
def test_pairs_that_are_torn_apart_are_told() -> None:
    """p3o compares whole answers: of single decisions, which control methods shuffle, no two are a pair."""

    def torn(recipe: Recipe) -> Recipe:
        return recipe if recipe.actor == LANGUAGE.actor else replace(recipe, source=fresh.FreshDecisions())

    with changed("p3o", torn):
        assert "a part of a group" in complaint("p3o", "on control")
    assert complaint("p3o", "on control") == ""


def test_a_recipe_whose_groups_have_nothing_to_compare_does_not_train() -> None:
    with changed("grpo", lambda recipe: recipe.set("group_size", 1)):
        assert "did not move" in complaint("grpo", "default task")


def test_a_reference_that_follows_its_actor_is_told() -> None:
    def follows(recipe: Recipe) -> Recipe:
        return replace(recipe, copies={"reference": replace(recipe.copies["reference"], rate=1.0)})

    with changed("dpo", follows):
        assert "reference is" in complaint("dpo", "default task")
        assert "reference is" in complaint("dpo", "references never")
    assert complaint("dpo", "references never") == ""


@pytest.mark.parametrize(("name", "value"), [("rate", 0.5), ("every", 64)])
def test_a_target_network_at_another_rate_or_interval_is_told(name: str, value: float) -> None:
    def other(recipe: Recipe) -> Recipe:
        return replace(recipe, copies={"target": replace(recipe.copies["target"], **{name: value})})

    with changed("dqn", other):
        assert "target is" in complaint("dqn", "references never")


def test_a_stage_at_another_interval_is_told() -> None:
    def rarer(recipe: Recipe) -> Recipe:
        return replace(recipe, stages=tuple(replace(stage, every=2 * stage.every) for stage in recipe.stages))

    with changed("td3", rarer):
        assert "more rarely than every" in complaint("td3", "default task")
    assert complaint("td3", "default task") == ""


GROUPS = Edit("cut", fresh.shuffled_groups, "place[index] * num // num_groups", "torch.arange(len(index)) % num")
NOISE = Edit("out", explore.NoisyActor.act, "self.actor.clamp(", "(4 * ")


@pytest.mark.parametrize(
    ("key", "edit", "told"), [("grpo", GROUPS, "a part of a group"), ("td3", NOISE, "outside of its space")]
)
def test_mistakes_of_shared_parts_are_told(key: str, edit: Edit, told: str) -> None:
    with written(edit).install():
        assert told in complaint(key, "default task")
    assert complaint(key, "default task") == ""
