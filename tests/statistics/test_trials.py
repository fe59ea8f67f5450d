"""Blind trials: schedules, exact tests by enumeration and against scipy, letters, and bad input."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.statistics.trials import (
    barnard,
    chance_better,
    clopper_pearson,
    compared,
    fisher,
    holm,
    letters,
    mcnemar,
    posterior,
    scheduled,
    unblinded,
)

SMALL = [(4, 6, 2, 7), (1, 5, 6, 8), (0, 5, 5, 5), (3, 3, 0, 4), (3, 6, 3, 6)]
TABLES = [(7, 10, 3, 10), (1, 8, 6, 9), (0, 5, 5, 5), (12, 15, 8, 20), (3, 3, 0, 4), (5, 10, 5, 10)]
BITS = st.lists(st.integers(0, 1), min_size=1, max_size=12)


# ---------------------------------------------------------------------------------------------------- schedule
@given(st.integers(2, 5), st.integers(1, 12), st.integers(0, 10**6))
def test_every_arm_meets_every_item_once_with_its_seed(arms: int, items: int, seed: int) -> None:
    names = [f"arm {number}" for number in range(arms)]
    trials, key = scheduled(names, items, seed)
    met = [(key.arms[trial.token], trial.item) for trial in trials]
    assert sorted(met) == sorted(itertools.product(names, range(items)))
    assert all(key.items[trial.token] == trial.item for trial in trials)
    assert len({(trial.item, trial.seed) for trial in trials}) == items
    assert scheduled(names, items, seed) == (trials, key)
    assert not any(name in repr(trials) for name in names)


def test_order_is_random_and_tokens_say_nothing() -> None:
    trials, key = scheduled(["a", "b"], 400, 0)
    first = [key.arms[trials[place].token] == "a" for place in range(0, 800, 2)]
    assert 140 <= sum(first) <= 260
    assert [trial.item for trial in trials[::2]] != list(range(400))
    assert len(set(key.arms)) == 800
    assert scheduled(["a", "b"], 400, 1)[0] != trials


def test_unblinding_returns_outcomes_by_arm_and_item() -> None:
    trials, key = scheduled(["a", "b", "c"], 6, 3)
    truth = {("a", item): item % 2 for item in range(6)} | {("b", item): 1 for item in range(6)}
    outcomes = {trial.token: truth.get((key.arms[trial.token], trial.item), 0) for trial in trials}
    found = unblinded(key, outcomes)
    assert {arm: values.tolist() for arm, values in found.items()} == {
        "a": [0, 1, 0, 1, 0, 1],
        "b": [1] * 6,
        "c": [0] * 6,
    }
    token = trials[0].token
    with pytest.raises(AssayError, match="1 of 18 trials have no outcome"):
        unblinded(key, {name: value for name, value in outcomes.items() if name != token})
    with pytest.raises(AssayError, match="'other', which is not in the key"):
        unblinded(key, outcomes | {"other": 1})
    with pytest.raises(AssayError, match="must be 0 or 1, got 2"):
        unblinded(key, outcomes | {token: 2})


# ---------------------------------------------------------------------------------------------------- tests
@given(BITS, st.data())
def test_mcnemar_is_the_share_of_sign_flips(first: list[int], data: st.DataObject) -> None:
    second = data.draw(st.lists(st.integers(0, 1), min_size=len(first), max_size=len(first)))
    gaps = [a - b for a, b in zip(first, second, strict=True) if a != b]
    flips = [abs(sum(sign)) for sign in itertools.product((-1, 1), repeat=len(gaps))]
    expected = np.mean([flip >= abs(sum(gaps)) for flip in flips])
    assert mcnemar(first, second) == pytest.approx(expected)
    assert mcnemar(second, first) == mcnemar(first, second)


@pytest.mark.parametrize("table", SMALL)
def test_fisher_is_the_share_of_shuffles(table: tuple[int, int, int, int]) -> None:
    right, count, other, others = table
    marks = [1] * (right + other) + [0] * (count + others - right - other)
    totals = [sum(chosen) for chosen in itertools.combinations(marks, count)]
    likely = {each: totals.count(each) for each in set(totals)}
    expected = sum(number for number in likely.values() if number <= likely[right]) / len(totals)
    assert fisher(*table) == pytest.approx(expected)


@pytest.mark.parametrize("table", TABLES)
def test_tests_agree_with_scipy(table: tuple[int, int, int, int]) -> None:
    stats = pytest.importorskip("scipy.stats")
    right, count, other, others = table
    rows = [[right, other], [count - right, others - other]]
    assert fisher(*table) == pytest.approx(stats.fisher_exact(rows).pvalue, rel=1e-9)
    theirs = float(stats.barnard_exact(rows, pooled=True, n=256).pvalue)
    assert theirs - 1e-9 <= barnard(*table) <= theirs + 1e-3  # scipy's search for the worst rate may stop short


@pytest.mark.parametrize("table", TABLES)
def test_barnard_is_the_worst_rate_of_a_slow_search(table: tuple[int, int, int, int]) -> None:
    right, count, other, others = table

    def score(a: int, b: int) -> float:
        pooled = (a + b) / (count + others)
        spread = math.sqrt(pooled * (1 - pooled) * (1 / count + 1 / others))
        return abs(a / count - b / others) / spread if spread else 0.0

    tables = itertools.product(range(count + 1), range(others + 1))
    extreme = [each for each in tables if score(*each) >= score(right, other) - 1e-9]
    rates = np.linspace(0, 1, 20_001)
    slow = np.sum([chances(a, count, rates) * chances(b, others, rates) for a, b in extreme], axis=0)
    assert barnard(*table) == pytest.approx(float(slow.max()), abs=1e-6)


def chances(right: int, count: int, rates: np.ndarray) -> np.ndarray:
    return np.asarray(math.comb(count, right) * rates**right * (1 - rates) ** (count - right))


@pytest.mark.parametrize(("right", "count"), [(0, 7), (7, 7), (3, 10), (45, 60), (1, 1), (499, 1000)])
def test_intervals_agree_with_scipy(right: int, count: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    exact = stats.binomtest(right, count).proportion_ci(0.95, method="exact")
    found = clopper_pearson(right, count)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    bayes = posterior(right, count)
    ends = stats.beta(right + 1, count - right + 1).ppf([0.025, 0.975])
    assert (bayes.low, bayes.high) == pytest.approx(tuple(ends), abs=1e-9)


def test_mcnemar_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    first, second = [1] * 9 + [0] * 3 + [1] * 4, [0] * 9 + [1] * 3 + [1] * 4
    assert mcnemar(first, second) == pytest.approx(stats.binomtest(3, 12).pvalue)


@pytest.mark.parametrize(("count", "others"), [(4, 4), (6, 3), (8, 8)])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_exact_tests_hold_their_level_at_every_rate(count: int, others: int, alpha: float) -> None:
    """The chance of p <= alpha when both succeed equally often, by enumeration of all tables."""
    tables = list(itertools.product(range(count + 1), range(others + 1)))
    for test in (barnard, fisher):
        wrong = [table for table in tables if test(table[0], count, table[1], others) <= alpha]
        for rate in np.linspace(0, 1, 23):
            chances = [chance(a, count, rate) * chance(b, others, rate) for a, b in wrong]
            assert sum(chances) <= alpha + 1e-9


def chance(right: int, count: int, rate: float) -> float:
    return math.comb(count, right) * rate**right * (1 - rate) ** (count - right)


@pytest.mark.parametrize("count", [1, 5, 12])
def test_clopper_pearson_covers_at_every_rate(count: int) -> None:
    ends = [clopper_pearson(right, count, 0.9) for right in range(count + 1)]
    for rate in np.linspace(0.01, 0.99, 50):
        covered = sum(chance(right, count, rate) for right, each in enumerate(ends) if each.low <= rate <= each.high)
        assert covered >= 0.9 - 1e-9


@given(st.integers(1, 20), st.integers(1, 20), st.data())
@settings(deadline=None, max_examples=30)
def test_turning_the_table_round_changes_nothing(count: int, others: int, data: st.DataObject) -> None:
    right, other = data.draw(st.integers(0, count)), data.draw(st.integers(0, others))
    for test in (barnard, fisher):
        p_value = test(right, count, other, others)
        assert 0 < p_value <= 1
        assert test(other, others, right, count) == pytest.approx(p_value, abs=1e-6)
        assert test(count - right, count, others - other, others) == pytest.approx(p_value, abs=1e-6)
    better = chance_better(right, count, other, others)
    assert better + chance_better(other, others, right, count) == pytest.approx(1)


def test_chance_better_by_integration() -> None:
    grid = (np.arange(4000) + 0.5) / 4000
    first, second = (grid**a * (1 - grid) ** b for a, b in ((7, 3), (4, 8)))
    below = (np.cumsum(second) - second / 2) / second.sum()
    assert chance_better(7, 10, 4, 12) == pytest.approx(float((first * below).sum() / first.sum()), abs=1e-5)


# ---------------------------------------------------------------------------------------------------- many arms
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_lies_between_raw_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p_value, after in zip(p_values, adjusted, strict=True):
        assert p_value <= after <= min(1.0, p_value * len(p_values)) + 1e-12
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.asarray(adjusted)[order]) >= 0).all()


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@given(st.integers(2, 6), st.data())
def test_arms_share_a_letter_exactly_if_they_are_not_told_apart(count: int, data: st.DataObject) -> None:
    arms = [str(arm) for arm in range(count)]
    pairs = list(itertools.combinations(arms, 2))
    different = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    shown = letters(arms, different)
    for a, b in pairs:
        assert bool(set(shown[a]) & set(shown[b])) == ((a, b) not in different)


def test_report_tells_good_from_bad_and_names_the_rest_alike() -> None:
    good, bad = [1] * 38 + [0] * 2, [0] * 30 + [1] * 10
    report = compared({"bad": bad, "good": good, "also good": good[::-1]}, paired=False)
    assert report.letters == {"good": "a", "also good": "a", "bad": "b"}
    assert [each.different for each in report.pairs] == [True, True, False]
    assert report.rates["bad"].value == pytest.approx(11 / 42)
    assert report.pairs[0].rates == (0.25, 0.95)
    assert all(each.adjusted >= each.p_value for each in report.pairs)


def test_same_outcomes_are_never_told_apart() -> None:
    report = compared({"a": [1, 0, 1], "b": [1, 0, 1]}, paired=True)
    assert report.pairs[0].p_value == 1.0
    assert report.letters == {"a": "a", "b": "a"}


# ---------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: scheduled(["a"], 3, 0), "two or more different names"),
        (lambda: scheduled(["a", "a"], 3, 0), "two or more different names"),
        (lambda: scheduled(["a", "b"], 0, 0), "items .* got 0"),
        (lambda: mcnemar([1, 0], [1]), "equal items, got 2 and 1"),
        (lambda: mcnemar([], []), "at least one trial"),
        (lambda: mcnemar([0.5], [1]), "must be 0 or 1, got 0.5"),
        (lambda: mcnemar([math.nan], [1]), "finite"),
        (lambda: fisher(3, 2, 0, 1), "got 3 of 2"),
        (lambda: barnard(-1, 2, 0, 1), "got -1 of 2"),
        (lambda: barnard(1.5, 2, 0, 1), "whole numbers, got 1.5 of 2"),  # type: ignore[arg-type]
        (lambda: clopper_pearson(0, 0), "got 0 of 0"),
        (lambda: clopper_pearson(1, 2, 1.5), "level"),
        (lambda: compared({"a": [1]}, paired=True), "at least two arms, got 1"),
        (lambda: compared({"a": [1], "b": [1, 0]}, paired=True), "equal items"),
        (lambda: compared({"a": [1], "b": [1]}, paired=True, alpha=0.0), "alpha .* got 0.0"),
    ],
)
def test_bad_input_is_refused_by_name(make: Callable[[], object], words: str) -> None:
    with pytest.raises(AssayError, match=words):
        make()
