"""Tuning on plain functions: seeds kept apart, budgets counted, optimism seen, a killed search continued."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.statistics.search_space import Choice, Settings, Space, Uniform, Whole
from assay.statistics.tuning import HyperbandSearch, RandomSearch, Search, TuningPlan, tune
from assay.statistics.tuning_journal import Report

SPACE = Space({"rate": Uniform(1e-4, 1.0, log=True), "width": Whole(1, 64, log=True), "norm": Choice((True, False))})
PLAN = TuningPlan(12, (0, 1, 2), (100, 101, 102, 103), steps_per_run=900)


def bowl(chosen: Settings, seed: int, fraction: float, report: Report) -> float:
    """Best at rate 0.01 with norm; less budget is a lower score; seeds move it by little."""
    rate, norm = chosen["rate"], chosen["norm"]
    assert isinstance(rate, float)
    score = -((math.log10(rate) + 2) ** 2) + 0.5 * bool(norm) + 0.01 * math.sin(seed) - (1 - fraction)
    report(fraction, score)
    return score


def noise(chosen: Settings, seed: int, fraction: float, report: Report) -> float:
    """Settings do nothing: every difference is luck."""
    rate = chosen["rate"]
    assert isinstance(rate, float)
    return float(np.random.default_rng((seed, int(rate * 1e9))).normal())


class Killed(Exception):
    """Stands for a kill."""


def counted(objective: Any, most: int = 10**9) -> tuple[Any, list[tuple[Any, ...]]]:
    """The objective and the list of its calls; dies after `most` of them."""
    calls: list[tuple[Any, ...]] = []

    def call(chosen: Settings, seed: int, fraction: float, report: Report) -> float:
        if len(calls) >= most:
            raise Killed
        calls.append((tuple(chosen.items()), seed, fraction))
        return float(objective(chosen, seed, fraction, report))

    return call, calls


def searches() -> list[Any]:
    return [RandomSearch(), HyperbandSearch()]


def needed(search: Search) -> None:
    if isinstance(search, HyperbandSearch):
        pytest.importorskip("optuna")


# ---------------------------------------------------------------------------------------------------- the space
@given(st.integers(0, 10**6))
def test_samples_lie_in_the_space_and_are_repeatable(number: int) -> None:
    drawn = SPACE.sample(Draw(3, (number,)))
    assert drawn == SPACE.sample(Draw(3, (number,)))
    rate, width = drawn["rate"], drawn["width"]
    assert isinstance(rate, float)
    assert isinstance(width, int)
    assert 1e-4 <= rate <= 1.0
    assert 1 <= width <= 64
    assert drawn["norm"] in (True, False)


@given(st.floats(0.001, 0.999), st.integers(-5, 5), st.integers(0, 9))
def test_whole_numbers_reach_both_ends_and_no_further(share: float, low: int, extra: int) -> None:
    value = Whole(low, low + extra).at(share)
    assert isinstance(value, int)
    assert low <= value <= low + extra


def test_quantiles_are_those_of_the_distribution() -> None:
    assert Uniform(2.0, 4.0).at(0.5) == pytest.approx(3.0)
    assert Uniform(1e-4, 1.0, log=True).at(0.5) == pytest.approx(1e-2)
    assert [Whole(1, 4).at(share) for share in (0.1, 0.3, 0.6, 0.9)] == [1, 2, 3, 4]
    assert [Choice(("a", "b")).at(share) for share in (0.2, 0.7)] == ["a", "b"]
    assert Uniform(2.0, 2.0).at(0.3) == 2.0


def test_random_draws_are_spread_evenly() -> None:
    drawn = [SPACE.sample(Draw(0, (number,))) for number in range(2000)]
    assert np.mean([each["norm"] is True for each in drawn]) == pytest.approx(0.5, abs=0.05)
    logs = np.log10([float(each["rate"] or 0.0) for each in drawn])
    assert np.quantile(logs, [0.25, 0.5, 0.75]) == pytest.approx([-3, -2, -1], abs=0.15)


# ---------------------------------------------------------------------------------------------------- tuning
@pytest.mark.parametrize("search", searches(), ids=lambda each: type(each).__name__)
def test_chosen_is_the_best_mean_and_fresh_seeds_report_it(search: Search) -> None:
    needed(search)
    objective, calls = counted(bowl)
    found = tune(SPACE, objective, PLAN, search=search)
    full = [each for each in found.trials if each.fraction == 1.0]
    best = max(full, key=lambda each: each.score)
    assert found.settings == best.settings
    assert found.tuning.value == pytest.approx(best.score)
    scores = [bowl(found.settings, seed, 1.0, lambda part, value: None) for seed in PLAN.reporting_seeds]
    assert found.reported.value == pytest.approx(np.mean(scores))
    assert found.optimism.value == pytest.approx(found.tuning.value - found.reported.value)
    assert found.reported.low <= found.reported.value <= found.reported.high
    tuning = [call for call in calls if call[1] in PLAN.tuning_seeds]
    assert len(tuning) == found.tuning_runs
    level = tune(SPACE, lambda *run: 0.0, PLAN).optimism
    assert (level.low, level.value, level.high) == (0, 0, 0), "scores of seeds are means, not single answers"
    assert found.tuning_steps == round(900 * sum(call[2] for call in tuning))
    assert len(calls) - len(tuning) == len(PLAN.reporting_seeds)
    assert "fresh seeds" in str(found)


def test_hyperband_spends_less_than_random_search_on_as_many_trials() -> None:
    pytest.importorskip("optuna")
    plan = TuningPlan(40, (0,), (9,), steps_per_run=900)
    halved, plain = tune(SPACE, bowl, plan, search=HyperbandSearch()), tune(SPACE, bowl, plan)
    assert plain.tuning_steps == 40 * 900
    assert halved.tuning_steps < plain.tuning_steps
    assert {each.fraction for each in halved.trials} >= {1 / 9, 1.0}


def test_choosing_among_noise_is_optimistic() -> None:
    """The best of 20 means of luck is far above nothing; on fresh seeds it is luck again."""
    plans = [TuningPlan(20, (0, 1), tuple(range(100, 120)), 1, seed=seed) for seed in range(10)]
    gaps = [tune(SPACE, noise, plan).optimism.value for plan in plans]
    assert np.mean(gaps) == pytest.approx(1.87 / math.sqrt(2), abs=0.5)  # the mean of the largest of 20 normals is 1.87


def test_more_trials_begin_with_the_same_ones() -> None:
    few, many = (tune(SPACE, bowl, TuningPlan(count, (0,), (1,), 1)).trials for count in (3, 6))
    assert many[:3] == few


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_budget_is_trials_times_seeds_of_random_search(trials: int, tuned: int, fresh: int) -> None:
    plan = TuningPlan(trials, tuple(range(tuned)), tuple(range(10, 10 + fresh)), 7)
    found = tune(SPACE, bowl, plan)
    assert (found.tuning_runs, found.tuning_steps) == (trials * tuned, 7 * trials * tuned)


def test_equal_settings_are_one_run() -> None:
    objective, calls = counted(lambda chosen, seed, fraction, report: float(chosen["norm"]))
    found = tune(Space({"norm": Choice((False, True))}), objective, TuningPlan(20, (0,), (1,), 1))
    assert found.settings == {"norm": True}
    assert found.tuning_runs == 2
    assert len(calls) == 3


def test_one_seed_has_no_interval() -> None:
    found = tune(SPACE, bowl, TuningPlan(2, (0,), (1,), 1))
    assert (found.reported.low, found.reported.high) == (-math.inf, math.inf)


def test_failed_runs_are_never_chosen() -> None:
    def half(chosen: Settings, seed: int, fraction: float, report: Report) -> float:
        return math.nan if chosen["norm"] else bowl(chosen, seed, fraction, report)

    assert tune(SPACE, half, PLAN).settings["norm"] is False
    with pytest.raises(AssayError, match="none of 12 trials has a finite score"):
        tune(SPACE, lambda chosen, seed, fraction, report: math.inf, PLAN)


def test_failing_on_fresh_seeds_is_an_error() -> None:
    with pytest.raises(AssayError, match=r"no finite score on reporting seeds \[100, 101"):
        tune(SPACE, lambda chosen, seed, fraction, report: math.nan if seed >= 100 else 1.0, PLAN)


# ---------------------------------------------------------------------------------------------------- the journal
@pytest.mark.parametrize("search", searches(), ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("kill", [0, 1, 7, 20])
def test_killed_search_continues_without_repeating(search: Search, kill: int, tmp_path: Path) -> None:
    needed(search)
    straight, all_calls = counted(bowl)
    expected = tune(SPACE, straight, PLAN, search=search)
    first, before = counted(bowl, most=kill)
    with pytest.raises(Killed):
        tune(SPACE, first, PLAN, search=search, journal=tmp_path / "deep" / "runs.jsonl")
    second, after = counted(bowl)
    found = tune(SPACE, second, PLAN, search=search, journal=tmp_path / "deep" / "runs.jsonl")
    assert found == expected
    assert before + after == all_calls
    third, none = counted(bowl)
    assert tune(SPACE, third, PLAN, search=search, journal=tmp_path / "deep" / "runs.jsonl") == expected
    assert none == []


def test_line_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    expected = tune(SPACE, bowl, PLAN, journal=path)
    text = path.read_text()
    path.write_text(text[:-10])
    objective, calls = counted(bowl)
    assert tune(SPACE, objective, PLAN, journal=path) == expected
    assert len(calls) == 1
    assert path.read_text() == text


def test_journal_holds_scores_and_reports(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    tune(SPACE, bowl, TuningPlan(1, (0,), (1,), 1), journal=path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 3
    assert rows[1]["curve"] == [[1.0, rows[1]["score"]]]


def test_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    tune(SPACE, bowl, PLAN, journal=path)
    with pytest.raises(AssayError, match="journal of another space, plan or search"):
        tune(SPACE, bowl, TuningPlan(13, (0, 1, 2), (100, 101), 900), journal=path)
    path.write_text("{nonsense\n")
    with pytest.raises(AssayError, match=r"line 1 of .* is not JSON"):
        tune(SPACE, bowl, PLAN, journal=path)
    path.write_text("[1]\n")
    with pytest.raises(AssayError, match=r"line 1 of .* is not a run"):
        tune(SPACE, bowl, PLAN, journal=path)


def test_missing_optuna_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(AssayError, match=r"optuna is needed for the Hyperband search.*pip install 'assay\[scale\]'"):
        tune(SPACE, bowl, PLAN, search=HyperbandSearch())


# ---------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TuningPlan(0, (0,), (1,), 1), "trials .* got 0"),
        (lambda: TuningPlan(1, (0,), (1,), 0), "steps_per_run .* got 0"),
        (lambda: TuningPlan(1, (), (1,), 1), "tuning_seeds must hold at least one"),
        (lambda: TuningPlan(1, (0,), (), 1), "reporting_seeds must hold at least one"),
        (lambda: TuningPlan(1, (0, 0), (1,), 1), "tuning_seeds must differ"),
        (lambda: TuningPlan(1, (0, 1, 2), (2, 3, 1), 1), r"must not be tuned on, got \[1, 2\] in both"),
        (lambda: Space({}), "at least one setting"),
        (lambda: Uniform(2.0, 1.0), "in order, got 2.0 and 1.0"),
        (lambda: Uniform(0.0, math.nan), "finite"),
        (lambda: Uniform(0.0, 1.0, log=True), "above 0 on a logarithmic scale, got 0.0"),
        (lambda: Whole(1, 2.5), "whole numbers"),  # type: ignore[arg-type]
        (lambda: Choice(()), "options"),
        (lambda: Choice(([1],)), "options"),  # type: ignore[arg-type]
        (lambda: HyperbandSearch(rungs=0), "rungs"),
        (lambda: HyperbandSearch(factor=1), "factor"),
        (lambda: tune(SPACE, lambda *_: "good", PLAN), "must return a number, got 'good'"),  # type: ignore[arg-type, return-value]
    ],
)
def test_bad_input_is_refused_by_name(make: Callable[[], object], words: str) -> None:
    with pytest.raises(AssayError, match=words):
        make()
