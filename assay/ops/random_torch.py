"""The numbers of `assay.ops.random` on any device, for many seeds at once; bitwise the same.

A word is a 64-bit hash, stored as int64: sums and products wrap around as those of unsigned integers do, and right
shifts are masked to be logical. Coordinates are folded into the words of S seeds [S] and broadcast.

Axes: S seeds; the shape asked for follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.core.record import Draw
from assay.ops.random import ONES, PLAIN_FIRST, PLAIN_GOLDEN, PLAIN_SECOND, mix_plain


def signed(word: int) -> int:
    """Returns the same 64 bits as a signed integer."""
    word &= ONES
    return word - (ONES + 1) if word >> 63 else word


GOLDEN, FIRST, SECOND = signed(PLAIN_GOLDEN), signed(PLAIN_FIRST), signed(PLAIN_SECOND)


def shifted(word: Tensor, bits: int) -> Tensor:
    """Returns the word shifted right, filled with zeros."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def mixed(word: Tensor) -> Tensor:
    """Computes `random.mix`: SplitMix64's finaliser."""
    word = (word ^ shifted(word, 30)) * FIRST
    word = (word ^ shifted(word, 27)) * SECOND
    return word ^ shifted(word, 31)


def folded(word: Tensor, coordinate: int | Tensor) -> Tensor:
    """Returns the word one level below, at a coordinate: `Draw.at`."""
    if isinstance(coordinate, int):
        return mixed(word ^ signed(mix_plain((coordinate + PLAIN_GOLDEN) & ONES)))
    return mixed(word ^ mixed(coordinate + GOLDEN))


def marks(num: int, device: torch.device | str) -> Tensor:
    """Returns the hashes of the coordinates 0 to num - 1, before they are folded into a word."""
    return mixed(torch.arange(num, device=device) + GOLDEN)


def words(seeds: Sequence[int], path: Sequence[int | Tensor], device: torch.device | str) -> Tensor:
    """Returns the words of Draw(seed, path) of each seed, [..., S]; axes of tensor coordinates come before S."""
    plain, rest = [mix_plain((seed + PLAIN_GOLDEN) & ONES) for seed in seeds], list(path)
    while rest and isinstance(first := rest[0], int):  # on the host: a copy to the device would be waited for
        mark = mix_plain((first + PLAIN_GOLDEN) & ONES)
        del rest[0]
        plain = [mix_plain(word ^ mark) for word in plain]
    known, *others = map(signed, plain)
    word = torch.tensor([known, *others], device=device) if others else torch.full((1,), known, device=device)
    for coordinate in rest:
        word = folded(word, coordinate if isinstance(coordinate, int) else coordinate.unsqueeze(-1))
    return word


def as_uniform(word: Tensor) -> Tensor:
    """Computes `random.as_uniform`: hashes as uniform numbers in the open interval (0, 1), float64."""
    return (shifted(word, 12).double() + 0.5) * 2.0**-52


def as_open_float32(word: Tensor) -> Tensor:
    """Returns hashes as uniform numbers, float32, never rounded to 0 or 1."""
    return as_uniform(word).float().clamp(2.0**-25, 1.0 - 2.0**-24)


def uniform(word: Tensor, row: Tensor, rest: Tensor) -> Tensor:
    """Computes `random.uniform` at the coordinates that have these marks, float32 in the open interval (0, 1)."""
    return as_open_float32(mixed(mixed(word ^ row) ^ rest))


def permutation(draw: Draw, count: int, device: torch.device | str) -> Tensor:
    """Computes `random.permutation`: the order of the hashes of 0 to count - 1, as unsigned numbers."""
    word = folded(words((draw.seed,), draw.path, device), torch.arange(count, device=device))
    # A flipped highest bit orders signed integers as unsigned ones.
    return torch.argsort(word ^ signed(1 << 63), stable=True)


def integers(word: Tensor, bound: int, count: int) -> Tensor:
    """Computes `random.integers`: `count` numbers in [0, bound) for each word, [..., count]; bounds below 2^31."""
    assert bound < 1 << 31, f"{bound} rows: products of 32 bits would not fit"
    high = shifted(folded(word.unsqueeze(-1), torch.arange(count, device=word.device)), 32)
    return (high * bound) >> 32
