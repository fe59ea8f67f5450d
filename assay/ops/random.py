"""Randomness as a function: uniform numbers that are a hash of coordinates, the same on every device, in every order.

    h = mix(seed); for c in coordinates: h = mix(h xor mix(c + golden)); u = ((h >> 12) + 1/2) / 2^52

`mix` is the finaliser of SplitMix64 (Steele, Lea & Flood 2014), a bijection of 64-bit integers.

Tensors have the shape that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
THIRTY, TWENTY_SEVEN, THIRTY_ONE = np.uint64(30), np.uint64(27), np.uint64(31)
PLAIN_GOLDEN, PLAIN_FIRST, PLAIN_SECOND, ONES = int(GOLDEN), int(FIRST), int(SECOND), (1 << 64) - 1


def mix(word: np.ndarray) -> np.ndarray:
    """Returns SplitMix64's finaliser, element by element."""
    word = word ^ (word >> THIRTY)
    word *= FIRST
    word ^= word >> TWENTY_SEVEN
    word *= SECOND
    word ^= word >> THIRTY_ONE
    return word


def mix_plain(word: int) -> int:
    """Returns `mix` of one Python integer below 2^64."""
    word = ((word ^ (word >> 30)) * PLAIN_FIRST) & ONES
    word = ((word ^ (word >> 27)) * PLAIN_SECOND) & ONES
    return word ^ (word >> 31)


def hashed(draw: Draw, *coordinates: int | np.ndarray) -> np.ndarray:
    """Returns 64-bit hashes of the draw's path followed by `coordinates`, which broadcast against each other."""
    plain = mix_plain((draw.seed + PLAIN_GOLDEN) & ONES)
    rest: tuple[int | np.ndarray, ...] = (*draw.path, *coordinates)
    while rest and isinstance(rest[0], int):
        plain = mix_plain(plain ^ mix_plain((rest[0] + PLAIN_GOLDEN) & ONES))
        rest = rest[1:]
    return hashed_after(np.asarray(plain, dtype=np.uint64), *rest)


def hashed_after(word: np.ndarray, *coordinates: int | np.ndarray) -> np.ndarray:
    """Returns hashes of further coordinates: hashed_after(hashed(draw, a), b) = hashed(draw, a, b)."""
    with np.errstate(over="ignore"):
        for coordinate in coordinates:
            part = np.asarray(coordinate).astype(np.int64).view(np.uint64)
            word = mix(word ^ mix(part + GOLDEN))
    return word


def uniform(draw: Draw, *coordinates: int | np.ndarray) -> np.ndarray:
    """Returns uniform numbers in the open interval (0, 1), float64."""
    return as_uniform(hashed(draw, *coordinates))


def as_uniform(word: np.ndarray) -> np.ndarray:
    """Returns hashes as uniform numbers in the open interval (0, 1), float64."""
    return ((word >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def uniform_tensor(draw: Draw, shape: Sequence[int]) -> Tensor:
    """Returns uniform numbers of a shape, float32 in the open interval (0, 1); element i has coordinate i."""
    count = int(np.prod(shape))
    return as_open_float32(uniform(draw, np.arange(count))).reshape(tuple(shape))


def as_open_float32(values: np.ndarray) -> Tensor:
    """Returns float64 uniforms as float32, never rounded to 0 or 1."""
    return torch.from_numpy(values.astype(np.float32)).clamp_(2.0**-25, 1.0 - 2.0**-24)


def integers(draw: Draw, bound: int, count: int) -> np.ndarray:
    """Returns `count` integers in [0, bound); the bias of the multiply-shift is below 2^-32 for bounds under 2^32."""
    return below(hashed(draw, np.arange(count)), bound)


def integers_of(draw: Draw, sizes: tuple[int, int, int], bound: int) -> np.ndarray:
    """Returns `integers(draw.at(update, place), bound, count)` of every update, [updates, count], for `sizes` =
    (updates, place, count).
    """
    updates, place, count = sizes
    return below(hashed(draw, np.arange(updates)[:, None], place, np.arange(count)), bound)


def below(word: np.ndarray, bound: int) -> np.ndarray:
    """Returns hashes as integers in [0, bound)."""
    return (((word >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)


def permutation(draw: Draw, count: int) -> np.ndarray:
    """Returns a permutation of 0..count-1: the order of the items' hashes."""
    return np.argsort(hashed(draw, np.arange(count)), kind="stable")


def seed_for_torch(draw: Draw) -> int:
    """Returns a seed for torch's generator, for code that cannot take numbers (parameter initialisation)."""
    return int(hashed(draw) >> np.uint64(1))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Starts torch's own generator of the CPU at a seed inside the block; afterwards it is as before.

    `torch.manual_seed` seeds every device besides, which takes a millisecond and keeps a stack trace for each call.
    """
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
