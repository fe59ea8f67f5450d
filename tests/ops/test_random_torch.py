"""Hashes on tensors are those of numpy, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.core.record import Draw
from assay.ops import random, random_torch
from assay.rollouts.episodes import CHUNK, Uniforms, hashed_block, row_words

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]
SEEDS = (0, 1, 7, 2**31, 2**63 + 5, -3)


@pytest.mark.parametrize("device", DEVICES)
def test_words_are_the_hashes_of_draws(device: str) -> None:
    path = (5, 0, 12345, 2**40)
    word = random_torch.words(SEEDS, path, device)
    assert [number & random.ONES for number in word.tolist()] == [int(random.hashed(Draw(s, path))) for s in SEEDS]


@pytest.mark.parametrize("device", DEVICES)
def test_coordinates_that_are_tensors_come_before_the_seeds(device: str) -> None:
    many = random_torch.words(SEEDS, (3, torch.arange(4, device=device), 8), device)
    assert many.shape == (4, len(SEEDS))
    assert torch.equal(many[2], random_torch.words(SEEDS, (3, 2, 8), device))


@pytest.mark.parametrize("device", DEVICES)
def test_uniform_numbers_are_bitwise_those_of_numpy(device: str) -> None:
    rows, rest = np.arange(300).reshape(-1, 1), np.arange(40)[None]
    word = random_torch.words(SEEDS, (5, 17, 2), device).view(-1, 1, 1)
    found = random_torch.uniform(word, random_torch.marks(300, device).unsqueeze(1), random_torch.marks(40, device))
    for seed, own in zip(SEEDS, found, strict=True):
        wanted = random.as_open_float32(random.uniform(Draw(seed, (5, 17, 2)), rows, rest))
        assert torch.equal(own.cpu(), wanted)


@pytest.mark.parametrize("bound", [1, 7, 10_000, 2**31 - 1])
def test_integers_are_those_of_numpy(bound: int) -> None:
    found = random_torch.integers(random_torch.words(SEEDS, (3, 4), "cpu"), bound, 100)
    for seed, own in zip(SEEDS, found, strict=True):
        assert np.array_equal(own.numpy(), random.integers(Draw(seed, (3, 4)), bound, 100))


def test_no_number_is_0_or_1() -> None:
    lowest = torch.zeros(1, dtype=torch.int64)
    numbers = [((random_torch.shifted(word, 12).double() + 0.5) * 2.0**-52).float() for word in (lowest, lowest - 1)]
    assert numbers[1] == 1.0, "rounded up, as float32 has fewer digits"
    assert all(0 < float(number.clamp(2.0**-25, 1 - 2.0**-24)) < 1 for number in numbers)


def test_permutations_are_those_of_numpy() -> None:
    for draw in (Draw(3), Draw(2**62 + 5, (4, 1))):
        assert random_torch.permutation(draw, 1000, "cpu").tolist() == random.permutation(draw, 1000).tolist()


def test_blocks_of_uniform_numbers_are_those_of_numpy() -> None:
    rows, draw = (np.arange(5) * 3, np.arange(5)[::-1].copy()), Draw(11, (2, 7))
    here = Uniforms(draw, rows, 3)
    words = row_words(draw, rows, torch.device("cpu"))
    for time in (0, 63, 64, 200):
        block = hashed_block(words, time - time % CHUNK, 3)
        assert torch.equal(block[time % CHUNK], here.at(time))
