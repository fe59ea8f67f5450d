"""Measures offline datasets before training: the quality of their episodes, and the coverage of states and actions.

    TQ(D)    = (mean return of D - mean return of D_min) / (mean return of D_best - mean return of D_min)
    SACo(D)  = unique state-action pairs of D / unique state-action pairs of D_ref

Source: Schweighofer et al. 2022, arXiv:2111.04714. D_min comes from the worst policy (uniformly random), D_best from
the best policy found online, D_ref is the replay of that online run, as long as D. Neither measure is bounded by 1:
episodes can be better than the best policy's, and pairs can be missing in the replay. SACo assumes a deterministic
task, in which a pair determines its outcome; continuous states all differ, so they need `binned` or `decimals`.

Counting is exact, or by HyperLogLog (Flajolet et al. 2007): 2^p registers hold the largest number of leading zeros + 1
of the hashes that fell to them, unique = alpha m^2 / Σ 2^-register, by linear counting where that is below 2.5 m. Its
standard error is 1.04 / √m: 0.8 % at the usual p = 14, in 16 kB and one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.ops import random
from assay.statistics.intervals import Estimate, Values, finite, mean_interval

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
Words = NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Steps in the order in which they were made: states and actions by step, rewards, and whether an episode ended.

    `ends` is true at the last step of an episode, terminated or truncated. Steps after the last end belong to an
    episode that was cut off: their pairs count, their return does not.
    """

    states: ArrayLike
    actions: ArrayLike
    rewards: ArrayLike
    ends: ArrayLike


@dataclass(frozen=True)
class DatasetSheet:
    """The description of one dataset. Quantiles are those of 0, 25, 50, 75 and 100 %; NaN if unknown."""

    steps: int
    episodes: int
    unfinished_steps: int
    mean_return: Estimate
    return_quantiles: tuple[float, ...]
    length_quantiles: tuple[float, ...]
    unique_pairs: float
    quality: float
    coverage: float


def described(
    dataset: Dataset,
    *,
    worst: ArrayLike | None = None,
    best: ArrayLike | None = None,
    reference: Dataset | None = None,
    decimals: int | None = None,
    precision: int | None = None,
) -> DatasetSheet:
    """Computes counts, returns, TQ and SACo; a measure without its reference is NaN.

    `worst` and `best` are returns of episodes (or their mean) of the random and the best policy. `decimals` rounds
    states and actions before they are counted; with `precision` the count is HyperLogLog's of 2^precision registers.
    """
    steps = checked_steps(dataset)
    returns, lengths, unfinished = episode_returns(dataset.rewards, dataset.ends)
    unique = counted(dataset, decimals, precision)
    quality = math.nan
    if worst is not None and best is not None and returns.size:
        quality = trajectory_quality(returns, worst, best)
    coverage = math.nan if reference is None else ratio(unique, counted(reference, decimals, precision))
    return DatasetSheet(
        steps=steps,
        episodes=returns.size,
        unfinished_steps=unfinished,
        mean_return=mean_interval(returns, binary=False),
        return_quantiles=quantiles(returns),
        length_quantiles=quantiles(lengths),
        unique_pairs=unique,
        quality=quality,
        coverage=coverage,
    )


# ---------------------------------------------------------------------------------------------------- returns
def episode_returns(rewards: ArrayLike, ends: ArrayLike) -> tuple[Values, Values, int]:
    """Returns return and length of every finished episode, and the number of steps after the last end."""
    given, over = finite(rewards, "rewards"), finite(ends, "ends")
    if given.size != over.size:
        raise AssayError(
            f"ends must say of every step whether an episode ended, got {over.size} for {given.size} rewards"
        )
    last = np.flatnonzero(over)
    if not last.size:
        return np.zeros(0), np.zeros(0), given.size
    starts = np.concatenate([[0], last[:-1] + 1])
    returns = np.add.reduceat(given[: last[-1] + 1], starts)
    return np.asarray(returns), (last - starts + 1).astype(np.float64), int(given.size - last[-1] - 1)


def trajectory_quality(returns: ArrayLike, worst: ArrayLike, best: ArrayLike) -> float:
    """Computes TQ: 0 is as good as the worst policy, 1 as the best one; below and above are possible.

    The three are returns of episodes or their means. A best policy that is not better than the worst is refused, since
    then nothing can be normalised.
    """
    means = {}
    for name, values in (("returns", returns), ("worst", worst), ("best", best)):
        sample = finite(values, name)
        if not sample.size:
            raise AssayError(f"{name} must hold at least one return, got none: finish an episode first")
        means[name] = float(sample.mean())
    if not means["best"] > means["worst"]:
        raise AssayError(f"best must have a higher mean return than worst, got {means['best']} and {means['worst']}")
    return (means["returns"] - means["worst"]) / (means["best"] - means["worst"])


def quantiles(values: Values) -> tuple[float, ...]:
    """Computes minimum, quartiles and maximum; NaN without values."""
    if not values.size:
        return (math.nan,) * len(QUANTILES)
    return tuple(float(each) for each in np.quantile(values, QUANTILES))


# ---------------------------------------------------------------------------------------------------- pairs
def state_action_coverage(dataset: Dataset, reference: Dataset, decimals: int | None = None) -> float:
    """Computes SACo by exact counting; see `described` for the count by HyperLogLog."""
    return ratio(counted(dataset, decimals, None), counted(reference, decimals, None))


def counted(dataset: Dataset, decimals: int | None, precision: int | None) -> float:
    """Counts unique state-action pairs, exactly or by HyperLogLog."""
    checked_steps(dataset)
    words = pair_words(dataset.states, dataset.actions, decimals)
    return float(unique_rows(words)) if precision is None else hyperloglog(words, precision)


def pair_words(states: ArrayLike, actions: ArrayLike, decimals: int | None = None) -> Words:
    """Returns state and action of each step as a row of 64-bit words; -0 and 0 are one number."""
    if decimals is not None and (isinstance(decimals, bool) or not isinstance(decimals, int)):
        raise AssayError(f"decimals must be a whole number or None, got {decimals!r}")
    parts = []
    for name, values in (("states", states), ("actions", actions)):
        rows = np.asarray(values)
        flat = finite(rows, name).reshape(len(rows), -1)
        parts.append(flat if decimals is None else np.round(flat, decimals))
    return np.ascontiguousarray(np.concatenate(parts, axis=1) + 0.0).view(np.int64)


def binned(rows: ArrayLike, low: ArrayLike, high: ArrayLike, edges: int = 100) -> NDArray[np.int64]:
    """Bins continuous states or actions, as in the paper: the index among equally wide bins of each axis.

    Use the same ends for a dataset and its reference, those of the task or of both together. Values outside fall into
    the bin beyond the end; an axis whose ends are equal has one bin below and one from there on.
    """
    if isinstance(edges, bool) or not isinstance(edges, int) or edges < 2:
        raise AssayError(f"edges must be a whole number of at least 2, got {edges!r}: 100 is usual")
    given = np.asarray(rows)
    flat = finite(given, "rows").reshape(len(given), -1)
    ends = [np.broadcast_to(finite(end, name), flat.shape[1:]) for name, end in (("low", low), ("high", high))]
    if (ends[0] > ends[1]).any():
        raise AssayError(f"low must not be above high, got {ends[0].tolist()} and {ends[1].tolist()}: swap them")
    columns = [
        np.digitize(flat[:, axis], np.linspace(a, b, edges)) for axis, (a, b) in enumerate(zip(*ends, strict=True))
    ]
    return np.stack(columns, axis=1).astype(np.int64)


def unique_rows(words: Words) -> int:
    """Returns the number of different rows."""
    if not words.size:
        return 0
    rows = np.ascontiguousarray(words).view([("", words.dtype)] * words.shape[1]).ravel()
    return int(np.unique(rows).size)


def hyperloglog(words: Words, precision: int) -> float:
    """Estimates the number of different rows from 2^precision registers; order and repetition do not matter."""
    if isinstance(precision, bool) or not isinstance(precision, int) or not 4 <= precision <= 18:
        raise AssayError(f"precision must be a whole number from 4 to 18, got {precision!r}: 14 is usual")
    if not words.size:
        return 0.0
    hashes = random.hashed(Draw(0), *(words[:, column] for column in range(words.shape[1])))
    count = 1 << precision
    register = (hashes >> np.uint64(64 - precision)).astype(np.int64)
    rest = (hashes << np.uint64(precision)) | np.uint64(1 << (precision - 1))  # a one where the hash has no bits left
    registers = np.zeros(count, dtype=np.int64)
    np.maximum.at(registers, register, leading_zeros(rest) + 1)
    scale = {16: 0.673, 32: 0.697, 64: 0.709}.get(count, 0.7213 / (1 + 1.079 / count))
    estimate = scale * count**2 / float((2.0**-registers).sum())
    empty = int((registers == 0).sum())
    return count * math.log(count / empty) if estimate <= 2.5 * count and empty else estimate


def leading_zeros(words: NDArray[np.uint64]) -> Words:
    """Counts the leading zeros of 64-bit words, by halving."""
    zeros, left = np.zeros(words.shape, dtype=np.int64), words.copy()
    for bits in (32, 16, 8, 4, 2, 1):
        small = left < np.uint64(1 << (64 - bits))
        zeros += bits * small
        left = np.where(small, left << np.uint64(bits), left)
    return zeros


def ratio(unique: float, reference: float) -> float:
    """Computes the share; refuses a reference without pairs."""
    if reference <= 0:
        raise AssayError("reference must hold at least one step, got none: give the replay of the online run")
    return unique / reference


# ---------------------------------------------------------------------------------------------------- input
def checked_steps(dataset: Dataset) -> int:
    """Returns the number of steps, equal in all four fields and at least one."""
    fields = {"states": dataset.states, "actions": dataset.actions, "rewards": dataset.rewards, "ends": dataset.ends}
    sizes = [(name, len(np.atleast_1d(np.asarray(values)))) for name, values in fields.items()]
    if len({size for _, size in sizes}) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes)
        raise AssayError(
            f"a dataset must have as many states as actions, rewards and ends, got {told}: make them equally long"
        )
    if not sizes[0][1]:
        raise AssayError("a dataset must hold at least one step, got none: collect some")
    return sizes[0][1]
