"""`assay.compare` from Python, and what runs and comparisons show in a notebook."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import assay
from assay import recipes
from assay.core.errors import AssayError
from assay.recipes.presets import TABLE
from assay.runs.compare import space_of
from assay.runs.comparison import Outcome
from assay.runs.notebook import html_table, mean_curve, svg_curves
from assay.statistics.search_space import Choice, Uniform, Whole

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    mine = replace(recipes.grpo(TABLE), name="mine")
    return assay.compare(
        {"plain": "reinforce", "mine": mine}, "bandit", seeds=2, steps=3, jobs=1,
        out=tmp_path_factory.mktemp("compare") / "out",
    )  # fmt: skip


def test_methods_and_recipes_are_compared_by_name(outcome: Outcome) -> None:
    assert not outcome.failures
    assert [len(outcome.of(name)) for name in ("plain", "mine")] == [2, 2]
    shown = outcome._repr_html_()
    assert [line.split()[0] for line in repr(outcome).splitlines()] == ["arm", "plain", "mine"]
    assert all(word in shown for word in ("plain", "mine", "minus plain, paired", "<svg"))


@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_functions_of_a_notebook_are_compared_in_this_process(tmp_path: Path) -> None:
    seen: list[str] = []

    def paid(completions: list[str]) -> list[float]:
        seen.extend(completions)
        return [1.0 for _ in completions]

    found = assay.compare(
        ["grpo", "rloo"], "sorting-3", reward=paid, seeds=1, steps=1, warmup=0, prompts=2, group_size=2, eval_prompts=4,
        evaluations=0, out=tmp_path / "out",
    )  # fmt: skip
    assert seen
    assert [one.score for one in found.results] == [1.0, 1.0]


def test_one_name_is_no_list_of_methods() -> None:
    with pytest.raises(AssayError, match=r"methods is 'grpo'\. Give a list"):
        assay.compare("grpo", "sorting-3")


def test_a_function_that_makes_a_recipe_is_an_arm(tmp_path: Path) -> None:
    def mine(preset: assay.presets.Preset) -> assay.Recipe:
        return replace(recipes.reinforce(preset), name="mine")

    found = assay.compare([mine, "reinforce"], "bandit", seeds=1, steps=2, out=tmp_path / "out")
    assert [arm.name for arm in found.setup.arms] == ["mine", "reinforce"]
    assert found.of("mine")[0].score == found.of("reinforce")[0].score


def test_parts_are_ablated_from_python(tmp_path: Path) -> None:
    found = assay.ablate("dr_grpo", "grpo", "bandit", steps=2, seeds=2, out=tmp_path / "out", jobs=2)
    assert sum(row["share"]["value"] for row in found.facts["rows"]) == pytest.approx(found.facts["total"]["value"])
    assert all(word in found._repr_html_() for word in ("share", "added to grpo", "removed from dr-grpo"))
    assert [line.split()[0] for line in repr(found).splitlines()] == ["dr-grpo", "aggregate", "scale", "all"]


def test_settings_are_tuned_from_python(tmp_path: Path) -> None:
    space = {"policy.learning_rate": "1e-3:1:log"}
    words = {"trials": 2, "tuning_seeds": 1, "seeds": 2, "steps": 2, "out": tmp_path / "out"}
    found = assay.tune("rloo", "bandit", space, **words)
    assert found.reported.count == 2
    assert len(found.trials) == 2
    assert "fresh seeds" in found._repr_html_()
    assert "policy.learning_rate" in repr(found)


def test_ranges_are_texts_pairs_and_lists() -> None:
    space = space_of({"a": "1:3", "b": (0.5, 2.0), "c": [1, 2], "d": (2, 4), "e": Uniform(0.0, 1.0)})
    assert list(space.settings.values()) == [
        Whole(1, 3), Uniform(0.5, 2.0), Choice((1, 2)), Whole(2, 4), Uniform(0.0, 1.0),
    ]  # fmt: skip
    with pytest.raises(AssayError, match=r"'a' has the range \(1, 2, 3\)"):
        space_of({"a": (1, 2, 3)})  # type: ignore[dict-item]


def test_a_run_shows_its_scores_and_its_curve(tmp_path: Path) -> None:
    run = assay.train("reinforce", "bandit", steps=4, evaluations=2, out=tmp_path / "run")
    shown = run._repr_html_()
    assert str(run.after) in shown
    assert "<polyline" in shown


def test_pieces_of_a_notebook_are_escaped_and_well_formed() -> None:
    assert "<b>" not in html_table(["<b>"], [["a & b"]])
    figure = svg_curves({"one": ([0, 1], [0.0, 1.0]), "two<": ([0, 1], [1.0, 1.0])}, "score <x>")
    assert len(ElementTree.fromstring(figure).findall("polyline")) == 2
    assert svg_curves({"one": ([0], [1.0])}, "t") == ""
    rows = [[{"step": 0, "evaluation": 1.0}, {"step": 2, "evaluation": 3.0}], [{"step": 0, "evaluation": 0.0}]]
    assert mean_curve(rows) == ([0], [0.5])


def test_a_script_without_a_guard_is_run_once(tmp_path: Path) -> None:
    """Processes that are started would run it again, and compare in each of them."""
    (tmp_path / "script.py").write_text(
        "print('once')\n"
        "import assay\n"
        "found = assay.compare(['grpo', 'rloo'], 'bandit', seeds=1, steps=1, evaluations=0)\n"
        "print(len(found.results), len(found.failures))\n"
    )
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
                           capture_output=True, text=True, check=True)  # fmt: skip
    said = ended.stdout.splitlines()
    assert said.count("once") == 1
    assert said[-1] == "2 0"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: assay.compare(["grpo"], "bandit", seeds="x"), "seeds is 'x'. Use a whole number or None"),  # type: ignore[arg-type]
        (lambda: assay.compare(["grpo"], "bandit", stepz=3), "'stepz' is no option. Did you mean steps="),  # type: ignore[call-arg]
        (lambda: assay.train("grpo", "bandit", learning_rate=3), r"settings={'learning_rate': X}"),  # type: ignore[call-arg]
        (lambda: assay.train("grpo", "bandit", gamma=3), r"Did you mean settings={'discount': X}"),  # type: ignore[call-arg]
        (lambda: assay.train("ppo", "bandit", callbacks=[3]), "callback 3 cannot be called"),  # type: ignore[list-item]
        (lambda: assay.tune("ppo", "cartpole", ["x"]), r"search_space is \['x'\]. Give a dict"),  # type: ignore[arg-type]
        (lambda: assay.show(3), "method is 3. Give a name"),  # type: ignore[arg-type]
        (lambda: assay.claim("grpo", budget="x"), "budget is 'x'. Use a positive number"),  # type: ignore[arg-type]
        (lambda: assay.resume("runs/none", functions=3), "functions is 3. Use a list or a dict"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(
    call: Any, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssayError, match=match):
        call()
