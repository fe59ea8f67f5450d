"""Aggregates of score tables [runs, tasks]; see `assay.statistics.scores`.

Axes: R run, K task, S resample; `...` stands for S or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import AssayError
from assay.statistics.intervals import Values

LARGEST = 1e300  # sums of larger scores overflow



Statistic: TypeAlias = Callable[..., float]
Kernel: TypeAlias = Callable[..., Values]



AXES, FIX = ("run", "task"), "leave the run out or give a failed run a score"



# ---------------------------------------------------------------------------------------------------- aggregates
def mean(scores: ArrayLike) -> float:
    """Computes the mean over tasks of the mean over runs."""
    return float(mean_of(table(scores)))


def median(scores: ArrayLike) -> float:
    """Computes the median over tasks of the mean over runs; nearly half of the tasks can fail without changing it."""
    return float(median_of(table(scores)))


def iqm(scores: ArrayLike) -> float:
    """Computes the interquartile mean over all runs and tasks; the mean if there are fewer than four scores."""
    return float(iqm_of(table(scores)))


def optimality_gap(scores: ArrayLike, target: float = 1.0) -> float:
    """Computes how far scores are below `target` on average; scores above it count as `target`."""
    return float(optimality_gap_of(table(scores), target))


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> float:
    """Computes the probability that a run of `x` beats one of `y` on a random task, ties half; run counts may vary."""
    return float(improvement_of(*tables({"x": x, "y": y})))


def mean_of(scores_RK: Values) -> Values:
    """Computes the mean of tables in the last two axes."""
    return np.asarray(scores_RK.mean(-2).mean(-1))


def median_of(scores_RK: Values) -> Values:
    """Computes the median of task means of tables in the last two axes."""
    return np.asarray(np.median(scores_RK.mean(-2), axis=-1))


def iqm_of(scores_RK: Values) -> Values:
    """Computes the interquartile mean of tables in the last two axes."""
    count = scores_RK.shape[-2] * scores_RK.shape[-1]
    cut = count // 4
    flat = scores_RK.reshape(*scores_RK.shape[:-2], count)
    return np.asarray(np.partition(flat, (cut, count - cut - 1), axis=-1)[..., cut : count - cut].mean(-1))


def optimality_gap_of(scores_RK: Values, target: float = 1.0) -> Values:
    """Computes the optimality gap of tables in the last two axes."""
    if not math.isfinite(target):
        raise AssayError(f"the target of an optimality gap must be finite, got {target}: 1.0 is a human's score")
    return np.asarray(target - np.minimum(scores_RK, target).mean((-2, -1)))


def improvement_of(x_RK: Values, y_RK: Values) -> Values:
    """Computes the probability of improvement of tables in the last two axes: half the share of > and of >= pairs."""
    runs_x, (runs_y, tasks) = x_RK.shape[-2], y_RK.shape[-2:]
    counts = np.zeros(x_RK.shape[:-2], dtype=np.int64)
    for run in range(runs_x):  # not all pairs at once: R times the memory
        x_K = x_RK[..., run : run + 1, :]
        counts += (x_K > y_RK).sum((-2, -1)) + (x_K >= y_RK).sum((-2, -1))
    return np.asarray(counts / (2 * runs_x * runs_y * tasks))


AGGREGATES: dict[str, Statistic] = {"iqm": iqm, "median": median, "mean": mean, "optimality_gap": optimality_gap}
KERNELS: tuple[tuple[Statistic, Kernel], ...] = (
    (iqm, iqm_of),
    (median, median_of),
    (mean, mean_of),
    (optimality_gap, optimality_gap_of),
    (probability_of_improvement, improvement_of),
)



# ---------------------------------------------------------------------------------------------------- input
def tables(named: Mapping[str, ArrayLike], *, paired: bool = False) -> list[Values]:
    """Returns checked tables of arms with the same tasks, and with the same runs where paired."""
    checked_tables = {name: table(each, f"the scores of {name}") for name, each in named.items()}
    (first, head), *others = checked_tables.items()
    for name, each in others:
        if each.shape[1] != head.shape[1]:
            counts = f"{first} has {head.shape[1]} and {name} {each.shape[1]}"
            raise AssayError(f"arms must share their tasks, but {counts}: keep the tasks that all of them have")
        if paired and each.shape[0] != head.shape[0]:
            counts = f"{first} has {head.shape[0]} and {name} {each.shape[0]}"
            raise AssayError(f"paired arms need equally many runs, but {counts}: use paired=False")
    return list(checked_tables.values())


def table(scores: ArrayLike, name: str = "scores", axes: Sequence[str] = AXES, fix: str = FIX) -> Values:
    """Returns scores as float64 [runs, tasks] (or the given axes); AssayError names what is wrong and where."""
    wanted = f"an array [{', '.join(f'{axis}s' for axis in axes)}]"
    try:
        array = np.asarray(scores)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AssayError(f"{name} must be {wanted} without gaps: {error}") from error
    if array.dtype.kind not in "biuf":
        raise AssayError(f"{name} must be numbers, got {array.dtype} (such as {array.ravel()[:1]}): convert them first")
    if array.ndim == len(axes) - 1 < 2:
        array = array[..., None]
    if array.ndim != len(axes):
        raise AssayError(f"{name} must be {wanted}, got {array.ndim} axes, shape {array.shape}: reshape it")
    if not array.size:
        raise AssayError(f"{name} are empty, shape {array.shape}: give at least one value")
    values = array.astype(np.float64)
    bad = np.argwhere(~(np.abs(values) <= LARGEST))
    if len(bad):
        where = ", ".join(f"{axis} {place}" for axis, place in zip(axes, bad[0], strict=True))
        what = f"{values[tuple(bad[0])]} at {where} ({len(bad)} of {values.size})"
        raise AssayError(f"{name} must be finite, got {what}: {fix}")
    return values
