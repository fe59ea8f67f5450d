"""`assay.compare` from Python, and what runs and comparisons show in a notebook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import assay
from assay import recipes
from assay.core.errors import AssayError
from assay.recipes.presets import TABLE
from assay.runs.comparison import Outcome
from assay.runs.notebook import html_table, mean_curve, svg_curves


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
    assert all(word in shown for word in ("plain", "mine", "minus plain, paired", "<svg"))


def test_functions_of_a_notebook_are_refused() -> None:
    with pytest.raises(AssayError, match=r"'paid' is no function of a file.*FILE\.py:paid"):
        assay.compare(["grpo"], "sorting-3", reward=paid_of())
    with pytest.raises(AssayError, match=r"methods is 'grpo'\. Give a list"):
        assay.compare("grpo", "sorting-3")  # type: ignore[arg-type]


def paid_of():  # type: ignore[no-untyped-def]
    def paid(completions: list[str]) -> list[float]:
        return [1.0 for _ in completions]

    return paid


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
