"""Intervals against published numbers, and the laws that every interval obeys."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.statistics.intervals import (
    Estimate,
    Series,
    decimals_of,
    difference_interval,
    digits,
    even_decimals,
    formatted,
    mean_interval,
    measured_change,
    number,
)
from assay.statistics.student import student_quantile

REALS = st.floats(-1e6, 1e6, allow_subnormal=False)
SAMPLES = st.lists(REALS, min_size=2, max_size=40)
BITS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60)


def ends(estimate: Estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


# ---------------------------------------------------------------------------------------------------- known numbers
@pytest.mark.parametrize(
    ("dof", "expected"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (30, 2.0423), (200, 1.9719)]
)
def test_student_quantiles_are_those_of_the_tables(dof: int, expected: float) -> None:
    assert student_quantile(0.975, dof) == pytest.approx(expected, abs=1e-4)


def test_student_quantile_joins_the_normal_one() -> None:
    assert student_quantile(0.975, 2000) == pytest.approx(student_quantile(0.975, 2001), abs=2e-3)
    assert student_quantile(0.975, 10**6) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_shares_have_wilsons_interval(right: int, count: int, low: float, high: float) -> None:
    """The four examples of Newcombe (1998), Statistics in Medicine 17, 857-872, method 3."""
    estimate = mean_interval([1.0] * right + [0.0] * (count - right))
    assert estimate.value == pytest.approx(right / count)
    assert ends(estimate) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(
    ("a", "b", "low", "high"), [((56, 70), (48, 80), 0.0524, 0.3339), ((9, 10), (3, 10), 0.1705, 0.8090)]
)
def test_differences_of_shares_have_newcombes_interval(
    a: tuple[int, int], b: tuple[int, int], low: float, high: float
) -> None:
    """Newcombe (1998), Statistics in Medicine 17, 873-890, method 10."""
    first, second = ([1.0] * right + [0.0] * (count - right) for right, count in (a, b))
    assert ends(difference_interval(first, second, paired=False)) == pytest.approx((low, high), abs=1e-4)


def test_paired_shares_have_newcombes_interval() -> None:
    """Newcombe (1998), Statistics in Medicine 17, 2635-2650, method 10, worked by hand: both 36, one 12, other 2.

    phi = -24 / sqrt(48 * 2 * 38 * 12) = -0.1147; Wilson of 0.96: [0.8654, 0.9890], of 0.76: [0.6259, 0.8570]
    down = sqrt(0.0946^2 + 0.0970^2 + 2 * 0.1147 * 0.0946 * 0.0970) = 0.1431
    up   = sqrt(0.0290^2 + 0.1341^2 + 2 * 0.1147 * 0.0290 * 0.1341) = 0.1404
    """
    first = [1.0] * 36 + [1.0] * 12 + [0.0] * 2
    second = [1.0] * 36 + [0.0] * 12 + [1.0] * 2
    estimate = difference_interval(first, second, paired=True)
    assert estimate.value == pytest.approx(0.2)
    assert ends(estimate) == pytest.approx((0.2 - 0.1431, 0.2 + 0.1404), abs=1e-4)


def test_few_values_have_students_interval() -> None:
    half = 4.302653 / math.sqrt(3)
    assert ends(mean_interval([1.0, 2.0, 3.0])) == pytest.approx((2 - half, 2 + half), abs=1e-5)


def test_differences_of_few_values_have_welchs_interval() -> None:
    # variances 2.5 and 10, so se² = 0.5 + 2 and dof = 2.5² / (0.5² / 4 + 2² / 4) = 5.88, rounded down to 5
    estimate = difference_interval([1, 2, 3, 4, 5], [2, 4, 6, 8, 10], paired=False)
    half = 2.570582 * math.sqrt(2.5)
    assert estimate.value == -3.0
    assert ends(estimate) == pytest.approx((-3 - half, -3 + half), abs=1e-5)


@pytest.mark.parametrize("count", [10, 20, 40])
def test_skewed_values_are_covered(count: int) -> None:
    draws = np.random.default_rng(0).exponential(size=(200, count))
    covered = [estimate.low <= 1.0 <= estimate.high for estimate in map(mean_interval, draws)]
    assert np.mean(covered) >= 0.91  # Student's t: 0.88, 0.91, 0.92


# ---------------------------------------------------------------------------------------------------- laws
@given(SAMPLES)
def test_interval_holds_the_mean_and_grows_with_its_level(values: list[float]) -> None:
    narrow, wide = mean_interval(values, 0.8, binary=False), mean_interval(values, 0.99, binary=False)
    assert narrow.low <= narrow.value <= narrow.high
    assert narrow.value == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert wide.low <= narrow.low
    assert wide.high >= narrow.high


@given(SAMPLES, st.randoms(use_true_random=False))
def test_order_of_the_values_does_not_matter(values: list[float], shuffle: object) -> None:
    other = list(values)
    shuffle.shuffle(other)  # type: ignore[attr-defined]
    scale = max(map(abs, values)) + 1
    assert ends(mean_interval(values)) == pytest.approx(ends(mean_interval(other)), abs=1e-9 * scale)


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=30), st.integers(1, 8), st.integers(-100, 100))
def test_units_do_not_matter(values: list[int], factor: int, shift: int) -> None:
    plain = mean_interval(values, binary=False)
    moved = mean_interval([factor * value + shift for value in values], binary=False)
    assert ends(moved) == pytest.approx((factor * plain.low + shift, factor * plain.high + shift), rel=1e-6, abs=1e-6)


@given(BITS)
def test_shares_stay_between_0_and_1_and_are_never_certain(values: list[float]) -> None:
    estimate = mean_interval(values)
    assert 0.0 <= estimate.low <= estimate.value <= estimate.high <= 1.0
    assert estimate.high - estimate.low > 0.01


@given(BITS, BITS)
def test_difference_turns_its_sign_with_its_arguments(a: list[float], b: list[float]) -> None:
    one, other = difference_interval(a, b, paired=False), difference_interval(b, a, paired=False)
    assert ends(one) == pytest.approx((-other.high, -other.low))
    assert -1.0 <= one.low <= one.value <= one.high <= 1.0


@given(BITS)
def test_equal_pairs_of_shares_differ_by_nothing_but_not_for_certain(values: list[float]) -> None:
    estimate = difference_interval(values, values, paired=True)
    assert estimate.value == 0.0
    assert estimate.low < 0.0 < estimate.high


@given(st.lists(st.tuples(REALS, REALS), min_size=2, max_size=12))
def test_pairs_are_the_mean_of_their_differences(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.asarray(column) for column in zip(*pairs, strict=True))
    if set(a) | set(b) <= {0.0, 1.0}:
        return
    assert difference_interval(a, b, paired=True) == mean_interval(a - b, binary=False)


def test_large_samples_agree_with_students_interval() -> None:
    values = np.random.default_rng(0).normal(size=1001)
    inside, beyond = mean_interval(values[:1000]), mean_interval(values)
    assert ends(inside) == pytest.approx(ends(beyond), abs=0.01)


# ---------------------------------------------------------------------------------------------------- edges
def test_no_value_and_one_value_are_defined() -> None:
    none, one = mean_interval([]), mean_interval([0.5])
    assert (math.isnan(none.value), none.low, none.high, none.count) == (True, -math.inf, math.inf, 0)
    assert one == Estimate(0.5, -math.inf, math.inf, 1)
    assert ends(mean_interval([1.0])) == pytest.approx((0.2065, 1.0), abs=1e-4)
    assert difference_interval([1.5], [0.5, 0.7], paired=False) == Estimate(0.9, -math.inf, math.inf, 1)
    assert difference_interval([], [], paired=True).count == 0


def test_equal_values_have_no_width() -> None:
    assert mean_interval([500.0] * 5) == Estimate(500.0, 500.0, 500.0, 5)
    assert mean_interval([0.1] * 50) == Estimate(pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.1), 50)


def test_values_said_not_to_be_binary_are_not() -> None:
    assert mean_interval([1.0, 1.0, 1.0], binary=False) == Estimate(1.0, 1.0, 1.0, 3)


@pytest.mark.parametrize("values", [[1.0, math.nan], [math.inf, 0.0], np.array([0.5, -np.inf])])
def test_values_that_are_not_finite_are_refused_by_their_place(values: object) -> None:
    with pytest.raises(AssayError, match="finite"):
        mean_interval(values)  # type: ignore[arg-type]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(AssayError, match="equal counts, got 2 and 3"):
        difference_interval([1, 2], [1, 2, 3], paired=True)
    with pytest.raises(AssayError, match="between 0 and 1, got 95"):
        mean_interval([1, 2], 95)
    with pytest.raises(AssayError, match="must be numbers"):
        mean_interval(["high"])  # type: ignore[list-item]


def test_tensors_and_booleans_are_values() -> None:
    assert mean_interval(torch.tensor([True, False])).value == 0.5
    assert mean_interval(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).count == 4


# ---------------------------------------------------------------------------------------------------- words
@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.42, 0.37, 0.47, 100), "0.42 [0.37, 0.47]"),
        (Estimate(0.0625, 0.0512, 0.0739, 100), "0.062 [0.051, 0.074]"),
        (Estimate(475.31, 468.2, 482.9, 100), "475 [468, 483]"),
        (Estimate(-0.004, -0.05, 0.04, 9), "0.00 [-0.05, 0.04]"),
        (Estimate(500.0, 500.0, 500.0, 5), "500 [500, 500]"),
        (Estimate(0.5, -math.inf, math.inf, 1), "0.5 (one value)"),
        (Estimate(math.nan, -math.inf, math.inf, 0), "no values"),
        (Estimate(2e8, 1e8, 3e8, 9), "2e+08 [1e+08, 3e+08]"),
    ],
)
def test_estimates_read_well(estimate: Estimate, text: str) -> None:
    assert formatted(estimate) == text
    assert str(estimate) == text


def test_changes_carry_signs() -> None:
    assert formatted(Estimate(0.31, 0.25, 0.37, 9), signed=True) == "+0.31 [+0.25, +0.37]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (12345.678, "12346"), (0.1, "0.1"), (3.14159, "3.142"), (1e-12, "1e-12"),
        (math.nan, "nan"), (-math.inf, "-inf"),
    ],
)  # fmt: skip
def test_numbers_read_well(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats())
def test_every_number_has_a_short_text(value: float) -> None:
    assert 0 < len(number(value)) <= 12


@pytest.mark.parametrize(
    ("after", "higher", "verdict"),
    [
        ([1] * 40, True, "better"),
        ([1] * 40, False, "worse"),
        ([0] * 40, True, "no clear change"),
    ],
)
def test_change_says_what_its_interval_says(after: list[int], higher: bool, verdict: str) -> None:
    change = measured_change("accuracy", [0] * 39 + [1], after, paired=True, higher_is_better=higher)
    assert change.verdict == verdict


# ---------------------------------------------------------------------------------------------------- curves
def test_series_has_the_mean_and_interval_of_the_seeds_that_were_measured() -> None:
    series = Series("a", [0, 1, 2], [[1.0, math.nan, math.inf], [3.0, 4.0, math.nan], [5.0, 5.0, math.nan]])
    x, mean = series.middle()
    assert (x.tolist(), mean.tolist()) == ([0, 1], [3.0, 4.5])
    x, low, high = series.band()
    assert x.tolist() == [0, 1]
    assert (low[0], high[0]) == pytest.approx(ends(mean_interval([1.0, 3.0, 5.0])))


def test_series_without_values_is_empty() -> None:
    series = Series("a", [0, 1], [[math.nan, math.nan]])
    assert [part.size for part in (*series.middle(), *series.band())] == [0] * 5


def test_a_column_has_as_many_decimals_as_its_narrowest_interval_and_one_more_than_the_widest_at_most() -> None:
    fine, rough = Estimate(0.443, 0.428, 0.458, 3), Estimate(0.45, 0.42, 0.48, 3)
    assert (decimals_of(fine), decimals_of(rough)) == (3, 2)
    places = even_decimals([fine, rough, Estimate(1.0, 1.0, 1.0, 3)])
    assert [digits(one, decimals=places)[0] for one in (fine, rough)] == ["0.443", "0.450"]
    assert even_decimals([Estimate(0.5, 0.49999, 0.50001, 3), Estimate(3.0, 1.0, 5.0, 3)]) == 1
    assert even_decimals([Estimate(1.0, 1.0, 1.0, 3)]) is None


def test_means_that_are_all_one_are_not_taken_for_single_answers() -> None:
    seeds = [1.0, 1.0, 1.0]
    assert difference_interval(seeds, seeds, paired=True).high > 0.5, "answers of three prompts say little"
    assert difference_interval(seeds, seeds, paired=True, binary=False) == Estimate(0.0, 0.0, 0.0, 3)
