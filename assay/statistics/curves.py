"""Curves of score tables with intervals at every point: performance profiles and sample efficiency.

    profile(τ)       share of all scores above τ, or of the tasks whose mean over runs is above τ
    efficiency(c)    an aggregate (the interquartile mean) of the scores at checkpoint c
    value_where      one curve where another quantity, such as the decisions taken, reaches a level

Intervals are pointwise, from the stratified bootstrap of `assay.statistics.scores`: each holds at its level for its own
point, not all of them at once. A resample draws whole runs, so a run keeps its curve over checkpoints.

Axes: R run, K task, C checkpoint; `...` stands for resamples or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import AssayError
from assay.statistics.aggregates import Statistic, iqm, table
from assay.statistics.intervals import Estimate, Values
from assay.statistics.scores import SHARE, WHOLE_LINE, Resampling, vectorised

RESAMPLES = 2000


@dataclass(frozen=True)
class Curve:
    """Estimates over increasing x."""

    x: tuple[float, ...]
    estimates: tuple[Estimate, ...]

    @property
    def values(self) -> Values:
        """Returns the estimates without their intervals."""
        return np.asarray([each.value for each in self.estimates])

    def band(self) -> tuple[Values, Values]:
        """Returns low and high ends."""
        return np.asarray([each.low for each in self.estimates]), np.asarray([each.high for each in self.estimates])


def value_where(path: ArrayLike, values: ArrayLike, level: float) -> float:
    """Returns the value where the path first reaches a level, linear between points: the first value if the path begins
    there or above, the last if it never comes there. Both are one row of equal length.
    """
    x, y = np.asarray(path, dtype=np.float64), np.asarray(values, dtype=np.float64)
    after = int((x >= level).argmax()) if (x >= level).any() else len(x) - 1
    if after == 0 or x[after] < level:
        return float(y[after])
    share = (level - x[after - 1]) / (x[after] - x[after - 1])
    return float(y[after - 1] + share * (y[after] - y[after - 1]))


def performance_profile(
    scores: ArrayLike,
    thresholds: ArrayLike,
    *,
    of_task_means: bool = False,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
    method: str = "percentile",
) -> Curve:
    """Returns the share of scores [runs, tasks] above each threshold; with `of_task_means` the share of tasks by
    their mean.

    The share of scores has the smaller uncertainty and no bias; task means hide runs that failed.
    """
    scores_RK, x = table(scores), increasing(thresholds, "thresholds")

    def shares(sample_RK: Values) -> Values:
        compared = sample_RK.mean(-2, keepdims=True) if of_task_means else sample_RK
        return np.stack([(compared > threshold).mean((-2, -1)) for threshold in x], axis=-1)

    how = Resampling(resamples, level, seed, method)
    return Curve(tuple(map(float, x)), tuple(how.estimates(shares, [scores_RK], SHARE)))


def sample_efficiency(
    scores: ArrayLike,
    x: ArrayLike | None = None,
    *,
    statistic: Statistic = iqm,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
    method: str = "percentile",
) -> Curve:
    """Returns an aggregate of scores [runs, tasks, checkpoints] at every checkpoint; `x` says where those are
    (frames, steps).

    Every run of every task is measured at the same checkpoints; without `x` they are numbered from 0.
    """
    scores_RKC = table(scores, axes=("run", "task", "checkpoint"))
    places = increasing(np.arange(scores_RKC.shape[2]) if x is None else x, "x")
    if len(places) != scores_RKC.shape[2]:
        raise AssayError(f"x needs one value per checkpoint, got {len(places)} for {scores_RKC.shape[2]} checkpoints")
    kernel = vectorised(statistic, 1)

    def at_checkpoints(sample_RKC: Values) -> Values:
        return np.stack([kernel(each) for each in np.moveaxis(sample_RKC, -1, 0)], axis=-1)

    how = Resampling(resamples, level, seed, method)
    return Curve(tuple(map(float, places)), tuple(how.estimates(at_checkpoints, [scores_RKC], WHOLE_LINE)))


def increasing(values: ArrayLike, name: str) -> Values:
    """Returns the values as finite numbers; refuses them if they do not increase."""
    points = table(values, name, axes=("point",), fix="leave it out")
    falls = np.flatnonzero(np.diff(points) <= 0)
    if falls.size:
        at = int(falls[0]) + 1
        raise AssayError(f"{name} must increase, got {points[at]} after {points[at - 1]} at place {at}: sort them")
    return points
