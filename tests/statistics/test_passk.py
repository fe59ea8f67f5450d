"""pass@k, votes, coverage and crossover against enumeration of subsets, and the laws they obey."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.statistics.passk import (
    Vary,
    coverage,
    crossover,
    majority_at_k,
    majority_vote,
    pass_at_k,
    pass_at_k_intervals,
)

ANSWERS = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8)


# ---------------------------------------------------------------------------------------------------- pass@k
@pytest.mark.parametrize("samples", range(1, 8))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(samples: int) -> None:
    for correct in range(samples + 1):
        marks = [1] * correct + [0] * (samples - correct)
        for k in range(1, samples + 1):
            subsets = list(itertools.combinations(marks, k))
            expected = sum(map(any, subsets)) / len(subsets)
            assert pass_at_k(samples, correct, k) == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 400), st.data())
def test_pass_at_k_is_the_formula_in_exact_integers(samples: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    expected = 1 - math.comb(samples - correct, k) / math.comb(samples, k)
    assert float(pass_at_k(samples, correct, k)) == pytest.approx(expected, abs=1e-10)


@given(st.integers(1, 60), st.data())
def test_pass_at_k_grows_with_k_and_with_right_ones_and_starts_at_the_share(samples: int, data: st.DataObject) -> None:
    values = pass_at_k(samples, np.arange(samples + 1), np.arange(1, samples + 1))
    assert values.shape == (samples + 1, samples)
    assert values[:, 0] == pytest.approx(np.arange(samples + 1) / samples)
    assert (np.diff(values, axis=0) >= -1e-12).all()
    assert (np.diff(values, axis=1) >= -1e-12).all()
    assert (values[0] == 0).all()
    assert (values[-1] == 1).all()


@pytest.mark.parametrize(("samples", "k"), [(6, 3), (10, 9)])
def test_pass_at_k_is_unbiased_for_one_minus_all_wrong(samples: int, k: int) -> None:
    prob = 0.3
    chances = [math.comb(samples, c) * prob**c * (1 - prob) ** (samples - c) for c in range(samples + 1)]
    mean = float(np.dot(chances, pass_at_k(samples, np.arange(samples + 1), k)))
    assert mean == pytest.approx(1 - (1 - prob) ** k)


def test_ten_thousand_samples_stay_exact() -> None:
    assert float(pass_at_k(10_000, 1, 5_000)) == pytest.approx(0.5)
    assert float(pass_at_k(10_000, 10_000, 1)) == 1.0


def test_samples_may_differ_between_problems() -> None:
    assert pass_at_k([2, 8], [1, 2], 2) == pytest.approx([1.0, 1 - 15 / 28])


def test_shape_follows_what_was_a_list() -> None:
    assert pass_at_k(4, 1, 2).shape == ()
    assert pass_at_k(4, [1], 2).shape == (1,)
    assert pass_at_k(4, 1, [2]).shape == (1,)
    assert pass_at_k(4, [1, 2, 3], [1, 2]).shape == (3, 2)


@pytest.mark.parametrize(
    ("correct", "samples", "k", "words"),
    [
        (1, 4, 5, "k=5 with 4 samples at problem 0"),
        ([1, 1], [9, 4], 5, "4 samples at problem 1"),
        (5, 4, 1, "correct must be at most samples, got 5 of 4"),
        (-1, 4, 1, "correct .* got -1"),
        (1.5, 4, 1, "correct .* got 1.5"),
        (math.nan, 4, 1, "correct .* got nan"),
        (1, 0, 1, "samples .* got 0"),
        (1, math.inf, 1, "samples .* got inf"),
        (1, 4, 0, "k .* got 0"),
        (1, 4, 1.5, "k .* got 1.5"),
        ([], 4, 1, "one or more problems"),
        ([[1]], 4, 1, "shape"),
        ([1, 2], [4, 4, 4], 1, "2, one for each problem"),
        (1, 4, [], "k must be"),
        ("one", 4, 1, "whole numbers"),
    ],
)
def test_bad_counts_are_refused_by_name(correct: object, samples: object, k: object, words: str) -> None:
    with pytest.raises(AssayError, match=words):
        pass_at_k(samples, correct, k)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- intervals
@given(st.lists(st.integers(0, 6), min_size=2, max_size=12), st.sampled_from(list(Vary)))
@settings(max_examples=20, deadline=None)
def test_interval_holds_the_mean_and_stays_a_share(correct: list[int], vary: Vary) -> None:
    for place, estimate in enumerate(pass_at_k_intervals(6, correct, [1, 3, 6], vary=vary)):
        assert estimate.value == pytest.approx(pass_at_k(6, correct, [1, 3, 6]).mean(0)[place])
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        assert estimate.count == len(correct)


def test_interval_is_repeatable_and_both_levels_are_wider_than_one() -> None:
    correct = [0, 1, 3, 8, 2, 0, 5, 7, 1, 0, 4, 6]
    widths = {}
    for vary in Vary:
        (estimate,) = pass_at_k_intervals(8, correct, 2, vary=vary)
        assert pass_at_k_intervals(8, correct, 2, vary=vary) == (estimate,)
        widths[vary] = estimate.high - estimate.low
    assert widths[Vary.SAMPLES] < widths[Vary.PROBLEMS] < widths[Vary.BOTH]


def test_one_problem_knows_nothing_of_other_problems() -> None:
    assert pass_at_k_intervals(4, 2, 1)[0].low == 0.0
    assert pass_at_k_intervals(4, 2, 1)[0].high == 1.0
    assert pass_at_k_intervals(4, 2, 1, vary=Vary.SAMPLES)[0].low >= 0.0


def test_equal_problems_give_no_spread() -> None:
    (never,) = pass_at_k_intervals(4, [0, 0, 0], 2)
    assert (never.low, never.high) == (0.0, 0.0)
    (always,) = pass_at_k_intervals(4, [4, 4, 4], 2)
    assert (always.low, always.high) == (1.0, 1.0)


def test_intervals_cover_the_mean_of_all_problems() -> None:
    generator = np.random.default_rng(0)
    truth, hits = 0.3 / 1.5, 0  # the mean of a Beta(0.3, 1.2)
    for trial in range(100):
        counts = generator.binomial(16, generator.beta(0.3, 1.2, size=40))
        (estimate,) = pass_at_k_intervals(16, counts, 1, vary=Vary.PROBLEMS, seed=trial)
        hits += estimate.low <= truth <= estimate.high
    assert hits >= 86  # 95 expected, 4 standard errors below


# ---------------------------------------------------------------------------------------------------- votes
def voted(answers: Sequence[Hashable], truth: Hashable, k: int) -> float:
    """maj@k by enumeration of all k-subsets."""
    subsets = list(itertools.combinations(answers, k))
    shares = [(truth in winners) / len(winners) for winners in map(majority_vote, subsets) if winners]
    return sum(shares) / len(subsets)


@given(ANSWERS, st.data())
@settings(deadline=None)
def test_majority_at_k_is_the_mean_over_subsets(answers: list[str | None], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    assert majority_at_k(answers, "a", k) == pytest.approx(voted(answers, "a", k), abs=1e-9)


@given(ANSWERS)
def test_vote_of_one_is_pass_at_one(answers: list[str | None]) -> None:
    assert majority_at_k(answers, "a", 1) == pytest.approx(Counter(answers)["a"] / len(answers))


@given(ANSWERS)
@settings(deadline=None)
def test_somebody_wins_unless_nobody_votes(answers: list[str | None]) -> None:
    total = sum(majority_at_k(answers, truth) for truth in "abc")
    assert total == pytest.approx(float(any(answer is not None for answer in answers)))


def test_ties_are_all_named_and_share_the_win() -> None:
    assert majority_vote(["b", "a", "a", "b", "c"]) == ("b", "a")
    assert majority_vote([None, None, "c"]) == ("c",)
    assert majority_vote([None]) == ()
    assert majority_vote([]) == ()
    assert majority_at_k(["b", "a", "a", "b", "c"], "a") == pytest.approx(0.5)
    assert majority_at_k(["b", "b"], "a") == 0.0


def test_many_samples_are_no_trouble() -> None:
    answers = ["a"] * 120 + ["b"] * 80 + [str(i) for i in range(10)]
    assert majority_at_k(answers, "a", 1) == pytest.approx(120 / 210)
    assert majority_at_k(answers, "a", 31) > majority_at_k(answers, "a", 5) > 120 / 210
    assert majority_at_k(answers, "a", 209) == pytest.approx(1.0)
    assert majority_at_k(answers, "a") == pytest.approx(1.0)
    assert majority_at_k(answers, "b") == 0.0


@pytest.mark.parametrize(
    ("answers", "truth", "k", "words"),
    [([], "a", None, "at least one"), (["a"], None, None, "truth"), (["a"], "a", 2, "k=2"), (["a"], "a", 0, "k ")],
)
def test_bad_votes_are_refused(answers: list[str], truth: str, k: int | None, words: str) -> None:
    with pytest.raises(AssayError, match=words):
        majority_at_k(answers, truth, k)


# ---------------------------------------------------------------------------------------------------- two models
def test_coverage_sorts_every_problem_once() -> None:
    found = coverage([0, 3, 1, 0], [0, 1, 0, 2])
    assert (found.both, found.only_first, found.only_second, found.neither) == ((1,), (2,), (3,), (0,))
    assert found.overlap == pytest.approx(1 / 3)
    assert math.isnan(coverage([0], [0]).overlap)
    with pytest.raises(AssayError, match="same problems, got 2 and 1"):
        coverage([1, 2], [1])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=10))
def test_coverage_turns_round_with_the_models(counts: list[tuple[int, int]]) -> None:
    a, b = zip(*counts, strict=True)
    there, back = coverage(a, b), coverage(b, a)
    assert (there.both, there.only_first) == (back.both, back.only_second)
    assert sorted(there.both + there.only_first + there.only_second + there.neither) == list(range(len(counts)))


def test_crossover_is_where_the_curves_cross() -> None:
    """The base solves every problem at times, the trained model half of them always: the base is ahead from 5 on."""
    base, trained = [2] * 20, [16] * 10 + [0] * 10
    ks = np.arange(1, 17)
    gaps = pass_at_k(16, base, ks).mean(0) - pass_at_k(16, trained, ks).mean(0)
    found = crossover(base, trained, 16)
    assert found.k == int(ks[gaps > 1e-12][0]) == 5
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.k <= found.high
    assert found.share == 1.0
    assert found.largest == 16


def test_crossover_may_never_come_or_be_there_from_the_start() -> None:
    never = crossover([1, 1, 0], [4, 4, 4], 4)
    assert (never.k, never.low, never.high, never.share) == (None, None, None, 0.0)
    same = crossover([1, 2, 0], [1, 2, 0], 4)
    assert same.k is None
    first = crossover([3, 3, 2], [1, 1, 0], 4)
    assert first.k == 1


def test_an_uncertain_crossover_may_end_at_never() -> None:
    found = crossover([2, 2, 2, 0], [8, 8, 0, 8], 8)
    assert found.high is None
    assert 0 < found.share < 1


def test_crossover_refuses_other_problems() -> None:
    with pytest.raises(AssayError, match="same problems"):
        crossover([1, 2], [1], 4)
    with pytest.raises(AssayError, match="trained must be at most samples"):
        crossover([1, 2], [1, 5], 4)
