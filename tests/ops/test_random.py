"""Randomness as a function: reference values, order, openness, evenness."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.core.record import Draw
from assay.ops import random

words = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(("state", "output"), [(0, 0xE220A8397B1DCDAF), (1234567, 6457827717110365317)])
def test_mix_is_the_finaliser_of_splitmix64(state: int, output: int) -> None:
    """The generator's first output is mix(seed + golden)."""
    with np.errstate(over="ignore"):
        assert int(random.mix(np.asarray([state], dtype=np.uint64) + random.GOLDEN)[0]) == output


@given(seed=words, path=st.lists(words, max_size=3), coordinate=words)
def test_a_level_of_the_path_is_a_coordinate(seed: int, path: list[int], coordinate: int) -> None:
    below = random.hashed(Draw(seed, tuple(path)).at(coordinate), 5)
    assert below == random.hashed(Draw(seed, tuple(path)), coordinate, 5)
    assert below == random.hashed(Draw(seed), *path, coordinate, 5)


@given(seed=words, rows=st.lists(words, min_size=1, max_size=5), times=st.lists(words, min_size=1, max_size=5))
def test_a_number_belongs_to_its_coordinates_and_not_to_its_place(seed: int, rows: list[int], times: list[int]) -> None:
    together = random.uniform(Draw(seed), np.array(rows)[:, None], np.array(times)[None])
    assert together.shape == (len(rows), len(times))
    for i, row in enumerate(rows):
        for j, time in enumerate(times):
            assert together[i, j] == random.uniform(Draw(seed), row, time)


def test_one_bit_of_any_coordinate_changes_half_of_the_bits() -> None:
    """Over all 64 bits of three places the mean is 32 with a standard error of 4 / sqrt(192) = 0.3."""
    base = (3, 1, 4)
    origin = int(random.hashed(Draw(9), *base))
    changes = []
    for place in range(3):
        for bit in range(63):
            moved = list(base)
            moved[place] ^= 1 << bit
            changes.append((int(random.hashed(Draw(9), *moved)) ^ origin).bit_count())
    assert min(changes) > 10
    assert np.mean(changes) == pytest.approx(32, abs=1.5)


@given(seed=words, path=st.lists(words, max_size=3).map(tuple))
def test_a_hash_can_be_continued(seed: int, path: tuple[int, ...]) -> None:
    rows, times = np.arange(3)[:, None], np.arange(4)[None]
    whole = random.hashed(Draw(seed, path), rows, times)
    assert np.array_equal(random.hashed_after(random.hashed(Draw(seed, path), rows), times), whole)
    assert np.array_equal(random.as_uniform(whole), random.uniform(Draw(seed, path), rows, times))


def test_uniform_numbers_are_open_and_even() -> None:
    for seed in range(5):
        numbers = random.uniform(Draw(seed), np.arange(100_000))
        assert numbers.min() > 0.0
        assert numbers.max() < 1.0
        counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
        assert ((counts - 5000) ** 2 / 5000).sum() < 60  # chi-square with 19 degrees: one in a million
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02


def test_float32_never_rounds_to_zero_or_one() -> None:
    hard = np.array([0.5 * 2.0**-53, 1.0 - 2.0**-54, 2.0**-30, 1.0 - 2.0**-30, 0.25])
    values = random.as_open_float32(hard)
    assert values.dtype == torch.float32
    assert bool(((values > 0) & (values < 1)).all())
    assert float(values[-1]) == 0.25
    assert bool(torch.special.ndtri(values.double()).isfinite().all())


def test_a_tensor_of_numbers_counts_its_elements() -> None:
    tensor = random.uniform_tensor(Draw(2, (7,)), (3, 4))
    assert tensor.shape == (3, 4)
    assert torch.equal(tensor.flatten()[:5], random.uniform_tensor(Draw(2, (7,)), (5,)))


@given(seed=words, bound=st.integers(1, 2**31), count=st.integers(0, 50))
def test_integers_stay_below_their_bound(seed: int, bound: int, count: int) -> None:
    values = random.integers(Draw(seed), bound, count)
    assert values.dtype == np.int64
    assert len(values) == count
    assert bool(((values >= 0) & (values < bound)).all())


def test_integers_are_even() -> None:
    counts = np.bincount(random.integers(Draw(1), 7, 70_000), minlength=7)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 40


@given(seed=words, count=st.integers(0, 200))
def test_a_permutation_has_every_number_once(seed: int, count: int) -> None:
    order = random.permutation(Draw(seed), count)
    assert sorted(order.tolist()) == list(range(count))


def test_permutations_differ_between_draws_and_are_even() -> None:
    firsts = np.bincount([random.permutation(Draw(0, (i,)), 5)[0] for i in range(5000)], minlength=5)
    assert ((firsts - 1000) ** 2 / 1000).sum() < 40


@given(seed=words, path=st.lists(words, max_size=2))
def test_seeds_for_torch_are_accepted(seed: int, path: list[int]) -> None:
    number = random.seed_for_torch(Draw(seed, tuple(path)))
    assert 0 <= number < 2**63
    torch.Generator().manual_seed(number)


def test_a_seeded_block_draws_as_after_manual_seed_and_leaves_the_stream_as_it_was() -> None:
    torch.manual_seed(3)
    begun, wanted = torch.get_rng_state(), torch.randn(5)
    torch.manual_seed(4)
    outside = torch.get_rng_state()
    with random.seeded(3):
        assert torch.equal(torch.get_rng_state(), begun)
        assert torch.equal(torch.randn(5), wanted)
    assert torch.equal(torch.get_rng_state(), outside)
