"""Dataset measures against slow counting, by hand, and their laws."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.statistics.datasets import (
    Dataset,
    binned,
    described,
    episode_returns,
    hyperloglog,
    leading_zeros,
    pair_words,
    state_action_coverage,
    trajectory_quality,
    unique_rows,
)

STEPS = st.lists(
    st.tuples(st.integers(-2, 2), st.integers(0, 2), st.integers(-3, 3), st.booleans()), min_size=1, max_size=40
)


def dataset(steps: list[tuple[int, int, int, bool]]) -> Dataset:
    states, actions, rewards, ends = zip(*steps, strict=True)
    return Dataset(states, actions, rewards, ends)


# ---------------------------------------------------------------------------------------------------- slow references
@given(STEPS)
def test_returns_are_those_of_a_loop(steps: list[tuple[int, int, int, bool]]) -> None:
    expected, total, length = [], 0, 0
    for _, _, reward, end in steps:
        total, length = total + reward, length + 1
        if end:
            expected.append((total, length))
            total, length = 0, 0
    data = dataset(steps)
    returns, lengths, unfinished = episode_returns(data.rewards, data.ends)
    assert list(zip(returns.tolist(), lengths.tolist(), strict=True)) == expected
    assert unfinished == length


@given(STEPS)
def test_pairs_are_those_of_a_set(steps: list[tuple[int, int, int, bool]]) -> None:
    expected = len({(state, action) for state, action, _, _ in steps})
    sheet = described(dataset(steps))
    assert sheet.unique_pairs == expected
    estimate = described(dataset(steps), precision=14).unique_pairs
    assert estimate == pytest.approx(expected, abs=0.1)  # linear counting: exact but for collisions of registers


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=20), st.integers(0, 2))
def test_rounding_joins_what_rounds_alike(states: list[list[float]], decimals: int) -> None:
    words = pair_words(states, [0] * len(states), decimals)
    assert unique_rows(words) == len(
        {tuple(round(value, decimals) + 0.0 for value in row) for row in np.asarray(states)}
    )


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_leading_zeros_are_those_of_the_binary_digits(words: list[int]) -> None:
    expected = [64 - word.bit_length() if word else 63 for word in words]
    found = leading_zeros(np.asarray(words, dtype=np.uint64))
    assert [min(63, zeros) for zeros in found.tolist()] == [min(63, zeros) for zeros in expected]


@pytest.mark.parametrize("unique", [10, 1_000, 30_000, 100_000])
@pytest.mark.parametrize("precision", [10, 14])
def test_hyperloglog_is_within_four_standard_errors(unique: int, precision: int) -> None:
    words = pair_words(np.arange(unique), np.zeros(unique))
    error = 1.04 / math.sqrt(2**precision)
    assert hyperloglog(words, precision) == pytest.approx(unique, rel=4 * error)


@given(STEPS, st.randoms())
@settings(max_examples=30)
def test_order_and_repetition_do_not_matter(steps: list[tuple[int, int, int, bool]], generator: object) -> None:
    data, twice = dataset(steps), dataset(steps[::-1] + steps)
    for precision in (None, 8):
        assert described(data, precision=precision).unique_pairs == described(twice, precision=precision).unique_pairs


# ---------------------------------------------------------------------------------------------------- by hand
def test_sheet_by_hand() -> None:
    data = Dataset([[0.0], [1.0], [0.0], [1.0], [2.0]], [0, 1, 0, 0, 1], [1.0, 2.0, 4.0, 1.0, 9.0], [0, 1, 0, 1, 0])
    replay = Dataset(np.arange(8.0), np.zeros(8), np.zeros(8), np.zeros(8))
    sheet = described(data, worst=[0.0, 2.0], best=7.0, reference=replay)
    assert (sheet.steps, sheet.episodes, sheet.unfinished_steps) == (5, 2, 1)
    assert sheet.mean_return.value == 4.0
    assert sheet.return_quantiles == (3.0, 3.5, 4.0, 4.5, 5.0)
    assert sheet.length_quantiles == (2.0,) * 5
    assert sheet.quality == pytest.approx((4 - 1) / (7 - 1))
    assert sheet.unique_pairs == 4
    assert sheet.coverage == pytest.approx(4 / 8)


def test_measures_without_references_are_unknown() -> None:
    sheet = described(Dataset([0], [0], [1.0], [0]))
    assert sheet.episodes == 0
    assert math.isnan(sheet.quality)
    assert math.isnan(sheet.coverage)
    assert math.isnan(sheet.mean_return.value)
    assert all(map(math.isnan, sheet.return_quantiles))


def test_more_exploration_covers_more_and_better_policies_score_more() -> None:
    """A corridor of ten cells with the reward at the end: a random walk covers more, walking straight earns more."""
    generator = np.random.default_rng(0)

    def walked(right: float, steps: int) -> Dataset:
        rows, cell = [], 0
        for _ in range(steps):
            action = int(generator.random() < right)
            after = min(9, max(0, cell + (1 if action else -1)))
            rows.append((cell, action, int(after == 9) * 10 - 1, after == 9))
            cell = 0 if after == 9 else after
        return dataset(rows)

    straight, lost, replay = walked(1.0, 500), walked(0.5, 500), walked(0.75, 5000)
    ends = {"worst": lost, "best": straight}
    returns = {name: episode_returns(data.rewards, data.ends)[0] for name, data in ends.items()}
    sheets = [described(data, **returns, reference=replay) for data in (straight, lost)]
    assert sheets[0].quality == pytest.approx(1.0)
    assert sheets[1].quality == pytest.approx(0.0)
    assert sheets[0].coverage < sheets[1].coverage <= 1.0


@given(st.floats(-50, 50), st.floats(0.1, 50))
def test_quality_is_free_of_units(shift: float, scale: float) -> None:
    returns, worst, best = np.asarray([1.0, 4.0]), np.asarray([0.0]), np.asarray([5.0])
    moved = (scale * each + shift for each in (returns, worst, best))
    assert trajectory_quality(*moved) == pytest.approx(trajectory_quality(returns, worst, best))


def test_coverage_of_itself_is_one_and_may_exceed_it() -> None:
    small, large = Dataset([0, 1], [0, 0], [0, 0], [0, 1]), Dataset([0, 1, 2], [0, 0, 0], [0, 0, 0], [0, 0, 1])
    assert state_action_coverage(small, small) == 1.0
    assert state_action_coverage(large, small) == 1.5


def test_bins_are_places_among_the_edges() -> None:
    rows = [[0.0, 5.0], [0.49, 5.0], [0.51, 4.0], [1.0, 6.0], [-3.0, 5.0]]
    found = binned(rows, [0.0, 5.0], [1.0, 5.0], edges=3)  # edges 0, 0.5 and 1; and 5 three times
    assert found.tolist() == [[1, 3], [1, 3], [2, 0], [3, 3], [0, 3]]
    assert binned([0.2, 0.7], 0.0, 1.0).shape == (2, 1)
    with pytest.raises(AssayError, match="low must not be above high"):
        binned(rows, 1.0, 0.0)
    with pytest.raises(AssayError, match=r"edges .* got 1"):
        binned(rows, 0.0, 1.0, edges=1)


def test_zero_has_one_sign() -> None:
    assert unique_rows(pair_words([0.0, -0.0], [0, 0])) == 1


# ---------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: described(Dataset([], [], [], [])), "at least one step"),
        (lambda: described(Dataset([0, 1], [0], [0.0], [1])), "states 2, actions 1"),
        (lambda: described(Dataset([math.nan], [0], [0.0], [1])), "states must be finite"),
        (lambda: described(Dataset([0], [0], [math.inf], [1])), "rewards must be finite"),
        (lambda: described(Dataset([0], [0], [0.0], [1]), precision=3), "precision .* got 3"),
        (lambda: described(Dataset([0], [0], [0.0], [1]), decimals=0.5), "decimals .* got 0.5"),  # type: ignore[arg-type]
        (lambda: episode_returns([1.0, 2.0], [1]), "got 1 for 2 rewards"),
        (lambda: trajectory_quality([], 0.0, 1.0), "returns must hold at least one"),
        (lambda: trajectory_quality([1.0], 1.0, 1.0), "higher mean return than worst, got 1"),
        (lambda: trajectory_quality([1.0], 2.0, 1.0), "higher mean return than worst"),
    ],
)
def test_bad_input_is_refused_by_name(make: Callable[[], object], words: str) -> None:
    with pytest.raises(AssayError, match=words):
        make()
