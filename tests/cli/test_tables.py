"""Tables in the terminal: nothing is cut off, effects have units, several seeds have a row over seeds."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from assay.claims import headline_texts
from assay.claims.find import find_claims
from assay.cli import main as cli
from assay.core.settings import describe
from assay.report import claims, comparison, method_tables, methods, overview, tables
from assay.report.units import effect_unit, effect_words
from assay.runs import catalogue
from assay.statistics.intervals import Estimate, mean_interval
from assay.tasks.control.pendulum import pendulum
from assay.tasks.language.addition import addition


@pytest.fixture(scope="module")
def listed() -> str:
    """What `assay list` prints on 100 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        out = tables.console()
        with out.capture() as captured:
            patch.setattr(method_tables, "console", lambda: out)
            method_tables.print_methods(methods.method_rows(), list(catalogue.tasks()))
    return captured.get()


def test_the_list_shows_every_description_whole_on_100_columns(listed: str) -> None:
    assert max(map(len, listed.splitlines())) <= 100
    words = " ".join(listed.split())
    for row in methods.method_rows():
        assert " ".join(row["summary"].split()) in words, row["name"]


def test_the_list_explains_its_verdicts_and_the_units_of_effects(listed: str) -> None:
    for word in {word for row in methods.method_rows() for word in methods.words_of(row, "verdict")}:
        assert f"{word}: {claims.MEANINGS[word][:20]}" in listed
    effects = re.findall(r"effect: [-+].*", listed)
    assert len(effects) > 40
    for effect in effects:
        assert re.search(r"\] (points|return|payoff|decisions|nats|tokens|cost|score|of a normalised score)\b", effect)


def test_the_overview_fits_a_screen_and_counts_what_the_whole_list_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tables.console()
    with out.capture() as captured:
        monkeypatch.setattr(overview, "console", lambda: out)
        overview.print_overview()
    lines, rows = captured.get().splitlines(), methods.method_rows()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert len(overview.starts()) == 10
    assert all(any(line.startswith(f"  {one.key} ") for line in lines) for one in overview.starts())
    num = sum(not row["studied"] for row in rows)
    assert lines[0].startswith(f"{num} methods in {len({row['family'] for row in rows})} families")
    for row in rows:
        assert headline_texts.headline_verdict(row["name"]) == row["headline"], row["name"]
    assert set(overview.TASKS) <= set(catalogue.tasks())


def test_effects_have_units_and_shares_are_percentage_points() -> None:
    claim = {"estimate": 0.31, "low": 0.2, "high": 0.42, "seeds": [0, 1, 2], "expect": "d > margin", "margin": 0.05}
    claim |= {
        "kind": "measured",
        "decided_by": {"task": "sorting-5", "metric": {"part": "Final", "metric": "evaluation"}},
    }
    assert effect_words(claim) == "+31 [+20, +42] points"
    assert claims.found(claim) == "+31 [+20, +42] points, 3 seeds"
    assert claims.expected(claim) == "held-out score: ours - theirs > 5 points"
    assert claims.in_units(claim) == {"estimate": 31.0, "low": 20.0, "high": 42.0, "unit": "points", "expect": "> 5"}
    units = {("Final", "evaluation", "cartpole"): "return", ("DecisionsTo", "reward", "cartpole"): "decisions",
             ("Average", "entropy", "many-ways"): "nats", ("Final", "evaluation", "prisoners-dilemma"): "payoff",
             ("Final", "evaluation", "random-mdp"): "of a normalised score", ("Final", "evaluation", ""): "score",
             ("Final", "pass@64", "many-ways"): "points", ("Final", "evaluation_cost", "hazards"): "cost"}  # fmt: skip
    assert {key: effect_unit({"part": key[0], "metric": key[1]}, key[2]) for key in units} == units


def test_an_inconclusive_claim_says_what_would_decide_it() -> None:
    claim = {
        "kind": "measured", "verdict": "inconclusive", "seeds": [0, 1], "expect": "d > margin", "margin": 0.0,
        "estimate": 1.0, "low": -1.0, "high": 3.0,
    }  # fmt: skip
    assert claims.found(claim).endswith("2 seeds; about 8 seeds would decide it if the difference stays")
    assert claims.found(claim | {"estimate": 0.01}).endswith("it needs a task with a larger effect")
    assert claims.found(claim | {"verdict": "holds"}).endswith("2 seeds")


def test_several_seeds_have_a_row_over_seeds() -> None:
    runs = [SimpleNamespace(before=Estimate(low, 0, 1, 20), after=Estimate(high, 0, 1, 20), task=pendulum())
            for low, high in ((0.1, 0.5), (0.2, 0.4), (0.3, 0.9))]  # fmt: skip
    row = tables.over_seeds(runs)
    assert row.name == "over 3 seeds"
    assert row.after == mean_interval([0.5, 0.4, 0.9], binary=False)
    assert row.change.value == pytest.approx(0.4)
    expected = mean_interval([0.4, 0.2, 0.6], binary=False)
    assert (row.change.low, row.change.high) == pytest.approx((expected.low, expected.high)), "seed by seed"
    assert row.after.high > 1.0
    row = tables.over_seeds([SimpleNamespace(**vars(run) | {"task": addition(1)}) for run in runs])
    assert (row.after.high, row.before.low, row.change.high) == (1.0, 0.0, pytest.approx(expected.high))


def test_train_prints_the_row_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "reinforce", "--task", "bandit", "--steps", "2", "--seeds", "2", "--out", str(tmp_path / "runs")]
    assert cli.main(words) == 0
    assert "over 2 seeds" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 140])
def test_a_comparison_has_whole_intervals_on_80_columns(width: int) -> None:
    def about(mean: float, radius: float) -> dict[str, float]:
        return vars(Estimate(mean, mean - radius, mean + radius, 5))

    same = {"task": "sorting-5", "seeds": 5, "failed": 0, "seconds": 123.0, "decisions": 10242.0}
    rows = [same | {"arm": "grpo", "score": about(0.508, 0.005), "difference": None, "improvement": None}]
    apart = {"difference": about(0.05, 0.0412), "improvement": about(0.7, 0.2), "seconds": 4321.0}
    rows.append(same | {"arm": "median-grpo", "score": about(0.558, 0.005), "failed": 1} | apart)
    out = Console(width=width)
    with out.capture() as captured:
        out.print(comparison.fitted(out, partial(comparison.task_table, rows, "sorting-5", "grpo")))
    printed = captured.get()
    assert max(map(len, printed.splitlines())) <= width
    for words in ("[0.503, 0.513]", "[0.553, 0.563]", "[0.5, 0.9]", "(1 failed)", "1:12:01"):
        assert words in printed
    assert ("0.508 [0.503, 0.513]" in printed) is (width > 80), "beside the mean where there is room"


def test_a_console_that_is_no_terminal_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in (("100", 100), ("", 120), ("x", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        assert tables.console().width == width


def test_every_measured_claim_names_its_metric() -> None:
    for key in catalogue.methods():
        for claim in (one for one in find_claims(key).measured if one.task):
            told = claims.metric_words(describe(claim.metric))
            assert told, key
            assert "None" not in told, key
    assert claims.metric_words({"part": "WithinBudget", "budget": 10.0}) == "within budget"
    assert claims.metric_words({"part": "PassAt", "k": 8}) == "pass@8"
    rule = {"metric": {"part": "Separation", "prompts": 512}, "task": "sorting-3"}
    claim = {"kind": "measured", "decided_by": rule, "expect": "d > margin", "margin": 0.0}
    assert claims.expected(claim) == "separation: ours - theirs > 0 points"
