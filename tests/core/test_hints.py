"""Suggestions for unknown names: near in letters or in meaning, and none otherwise."""

from __future__ import annotations

import pytest

from assay.core.errors import AssayError
from assay.core.hints import MEANINGS, edits, nearest
from assay.core.recipe import Recipe
from assay.core.settings import settings
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE
from assay.runs import catalogue

RECIPES = {
    "ppo": catalogue.methods()["ppo"].recipe(CONTROL),
    "grpo": catalogue.methods()["grpo"].recipe(LANGUAGE),
    "sac": catalogue.methods()["sac"].recipe(CONTINUOUS),
    "salu": catalogue.methods()["salu"].recipe(LANGUAGE),
}


def said(recipe: Recipe, word: str) -> str:
    with pytest.raises(AssayError) as error:
        recipe.set(word, "1")
    return str(error.value)


def test_edits_count_a_swap_of_neighbours_once() -> None:
    pairs = {("grpo", "gpro"): 1, ("grpo", "gspo"): 1, ("", "abc"): 3, ("kitten", "sitting"): 3, ("ab", "ba"): 1}
    assert {pair: edits(*pair) for pair in pairs} == pairs
    assert edits("gpro", "gspo") == 2


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gpro", "grpo"),
        ("gppo", "ppo"),
        ("startz", "num_starts"),
        ("GRPOO", "grpo"),
        ("kl", None),
        ("temperature", None),
        ("reversing-3", None),
        ("lo", None),
    ],
)
def test_a_name_is_suggested_only_if_it_is_near_in_letters(name: str, near: str | None) -> None:
    assert nearest(name, ["gspo", "grpo", "low", "certificate", "refusing", "sorting-3", "num_starts", "ppo"]) == near


@pytest.mark.parametrize(
    ("method", "word", "path"),
    [
        ("salu", "kl", "stages.policy.regularizers.KlToReference.coefficient"),
        ("salu", "beta", "stages.policy.regularizers.KlToReference.coefficient"),
        ("ppo", "clip", "stages.policy.objective.PolicyGradient.trust.high"),
        ("ppo", "epsilon", "stages.policy.objective.PolicyGradient.trust.high"),
        ("grpo", "lr", "stages.policy.optimizer.learning_rate"),
        ("ppo", "gamma", "credit.Gae.discount"),
        ("ppo", "lambda", "credit.Gae.gae_lambda"),
        ("ppo", "entropy", "stages.policy.regularizers.EntropyBonus.coefficient"),
        ("grpo", "batch_size", "rollout.num_starts"),
        ("sac", "batch_size", "source.batch"),
        ("grpo", "num_generations", "rollout.group_size"),
        ("sac", "alpha", "critics.temperature.initial"),
        ("sac", "tau", "copies.q_target.rate"),
        ("ppo", "max_grad_norm", "stages.policy.optimizer.clip_norm"),
    ],
)
def test_a_word_of_the_field_leads_to_a_setting_of_this_recipe(method: str, word: str, path: str) -> None:
    assert f"'{path}'" in said(RECIPES[method], word)
    assert tuple(path.split(".")) in settings(RECIPES[method])


def test_what_a_recipe_lacks_is_said_and_nothing_else_is_suggested() -> None:
    for method, word in (
        ("ppo", "kl"),
        ("grpo", "gamma"),
        ("sac", "clip"),
        ("ppo", "group_size"),
        ("grpo", "temperature"),
    ):
        text = said(RECIPES[method], word)
        assert "It has no setting for " in text
        assert "Did you mean" not in text
    assert "Did you mean" not in said(RECIPES["ppo"], "xyz")


def test_what_is_no_setting_is_said_where_it_is() -> None:
    assert "the option --kl adds one" in said(RECIPES["grpo"], "kl")
    assert "the option --temperature" in said(RECIPES["grpo"], "temperature")
    assert "'seed' is the option --seed." in said(RECIPES["ppo"], "seed")
    assert "'max_tokens' is the option --max-tokens." in said(RECIPES["grpo"], "max_tokens")


def test_every_meaning_is_found_in_some_recipe() -> None:
    known = [full for method in catalogue.methods().values() for full in settings(method.recipe(method.presets[0]))]
    for meaning in MEANINGS:
        for ending in meaning.endings:
            words = tuple(ending.split("."))
            assert any(full[-len(words) :] == words for full in known), f"{meaning.name}: no recipe has {ending}"
