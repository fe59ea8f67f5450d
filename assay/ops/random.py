"""Randomness as a function: uniform numbers that are a hash of coordinates, the same on every device, in every order.

    h = mix(seed); for c in coordinates: h = mix(h xor mix(c + golden)); u = ((h >> 12) + 1/2) / 2^52

`mix` is the finaliser of SplitMix64 (Steele, Lea & Flood 2014), a bijection of 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from assay.types import Draw

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


def mix(word: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, element by element."""
    with np.errstate(over="ignore"):
        word = (word ^ (word >> np.uint64(30))) * FIRST
        word = (word ^ (word >> np.uint64(27))) * SECOND
        return word ^ (word >> np.uint64(31))


def hashed(draw: Draw, *coordinates: int | np.ndarray) -> np.ndarray:
    """64-bit hashes of the draw's path followed by `coordinates`, which broadcast against each other."""
    with np.errstate(over="ignore"):
        word = mix(np.asarray(draw.seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64) + GOLDEN)
        for coordinate in (*draw.path, *coordinates):
            part = np.asarray(coordinate).astype(np.int64).view(np.uint64)
            word = mix(word ^ mix(part + GOLDEN))
        return word


def uniform(draw: Draw, *coordinates: int | np.ndarray) -> np.ndarray:
    """Uniform numbers in the open interval (0, 1), float64."""
    return ((hashed(draw, *coordinates) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def uniform_tensor(draw: Draw, shape: Sequence[int]) -> Tensor:
    """Uniform numbers of a shape, float32 in the open interval (0, 1); element i has coordinate i."""
    count = int(np.prod(shape))
    return as_open_float32(uniform(draw, np.arange(count))).reshape(tuple(shape))


def as_open_float32(values: np.ndarray) -> Tensor:
    """float64 uniforms as float32 without ever rounding to 0 or 1."""
    return torch.from_numpy(values.astype(np.float32)).clamp_(2.0**-25, 1.0 - 2.0**-24)


def integers(draw: Draw, bound: int, count: int) -> np.ndarray:
    """`count` integers in [0, bound); the bias of the multiply-shift is below 2^-32 for bounds under 2^32."""
    high = (hashed(draw, np.arange(count)) >> np.uint64(32)).astype(np.uint64)
    return ((high * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)


def permutation(draw: Draw, count: int) -> np.ndarray:
    """A permutation of 0..count-1: the order of the items' hashes."""
    return np.argsort(hashed(draw, np.arange(count)), kind="stable")


def seed_for_torch(draw: Draw) -> int:
    """A seed for torch's generator, for code that cannot take numbers (parameter initialisation)."""
    return int(hashed(draw) >> np.uint64(1))
