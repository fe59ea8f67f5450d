"""`assay ablate`: factors, arms, shares, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from assay import recipes
from assay.cli.main import main
from assay.core.errors import AssayError
from assay.parts.credit.outcome import LeaveOneOut, NoScale
from assay.parts.curricula.in_order import InOrder
from assay.recipes.presets import LANGUAGE
from assay.runs import ablation, catalogue


def test_factors_are_the_differences_of_the_recipes() -> None:
    found = ablation.factors_of(recipes.dapo(), recipes.grpo())
    assert [one.short for one in found] == ["high", "aggregate", "select", "credit"]


def test_arms_are_all_combinations_and_the_ends_are_the_recipes() -> None:
    dapo, grpo = recipes.dapo(), recipes.grpo()
    arms = ablation.arms_of(dapo, grpo, ablation.factors_of(dapo, grpo))
    assert len(arms) == len({arm.name for arm in arms.values()}) == 16
    assert arms[frozenset()].method == grpo
    assert arms[frozenset({0, 1, 2, 3})].method == replace(dapo, steps=grpo.steps)


def test_many_factors_are_swapped_from_both_ends() -> None:
    assert len(ablation.designs(6)) == 14
    assert len(ablation.designs(4)) == 16


def test_parts_that_need_each_other_are_one_factor() -> None:
    ppo, grpo = recipes.ppo(), recipes.grpo()
    for one in ablation.factors_of(ppo, grpo):
        assert ablation.broken(ppo, grpo, [one]) is None


def test_a_part_that_needs_another_is_added_after_it() -> None:
    rl_plus, grpo = catalogue.find_method("rl-plus")[1].recipe(LANGUAGE), recipes.grpo()
    found = ablation.factors_of(rl_plus, grpo)
    assert [one.short for one in found] == ["objective", "rollout"]
    arms = ablation.arms_of(rl_plus, grpo, found)
    assert [arm.name for arm in arms.values()] == ["grpo", "grpo + rollout", "rl-plus"]
    assert ablation.orders(arms.keys(), 2) == [(1, 0)]
    scores = {chosen: np.array([float(3 ** len(chosen))]) for chosen in arms}
    assert [float(ablation.shapley(scores, place, 2)[0]) for place in (0, 1)] == [6.0, 2.0]


def test_baseline_and_scale_of_one_advantage_are_swapped_apart() -> None:
    grpo = recipes.grpo()
    credit = replace(grpo.credit[0], baseline=LeaveOneOut(), scale=NoScale())
    mine = replace(grpo, name="mine", credit=(credit,))
    found = ablation.factors_of(mine, grpo)
    assert [one.short for one in found] == ["baseline", "scale"]
    arms = ablation.arms_of(mine, grpo, found)
    assert [arm.name for arm in arms.values()] == ["grpo", "grpo + baseline", "grpo + scale", "mine"]
    assert arms[frozenset({1})].method.credit[0] == replace(grpo.credit[0], scale=NoScale())


def test_equal_recipes_and_one_difference_are_refused() -> None:
    grpo = recipes.grpo()
    with pytest.raises(AssayError, match="differ in no part"):
        ablation.factors_of(grpo, grpo)
    with pytest.raises(AssayError, match="only one"):
        ablation.factors_of(replace(grpo, curriculum=InOrder()), replace(grpo, curriculum=None))


def test_shapley_values_add_up_and_give_a_pure_interaction_to_both() -> None:
    draw = np.random.default_rng(0)
    subsets = [frozenset(some) for size in range(4) for some in combinations(range(3), size)]
    scores = {some: draw.normal(size=5) for some in subsets}
    total = sum(ablation.shapley(scores, place, 3) for place in range(3))
    assert np.allclose(total, scores[frozenset({0, 1, 2})] - scores[frozenset()])
    both = {some: np.array([float({0, 1} <= some)]) for some in subsets}
    assert [float(ablation.shapley(both, place, 3)[0]) for place in range(3)] == pytest.approx([0.5, 0.5, 0.0])


def test_the_command_writes_shares_a_figure_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["ablate", "dr_grpo", "grpo", "--task", "bandit", "--steps", "2", "--seeds", "2"]
    assert main([*command, "--out", str(tmp_path / "a"), "--jobs", "2"]) == 0
    assert "share" in capsys.readouterr().out
    facts = json.loads((tmp_path / "a" / "ablation.json").read_text())
    shares = sum(row["share"]["value"] for row in facts["rows"])
    assert shares == pytest.approx(facts["total"]["value"])
    assert '"ablation"' in (tmp_path / "a" / "report.html").read_text()


def test_the_command_lists_what_it_would_swap(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "dapo", "grpo", "--task", "sorting-3", "--dry"]) == 0
    assert "grpo + select" in capsys.readouterr().out.replace("\n", " ")
