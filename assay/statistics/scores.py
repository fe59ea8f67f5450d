"""Aggregates of score tables [runs, tasks] with intervals, for several runs on several tasks.

    mean                          mean over tasks of the mean over runs
    median                        median over tasks of the mean over runs
    iqm                           mean of the middle half of all scores: floor(n / 4) are cut at both ends
    optimality_gap                mean of max(0, target - score)
    probability_of_improvement    mean over tasks of P(X > Y) + P(X = Y) / 2, over all pairs of a run of X and one of Y

Intervals come from the stratified bootstrap of Agarwal et al. (arXiv:2108.13264): the runs of every task are resampled
independently of the other tasks. They are about new runs on the same tasks, not about new tasks. Scores of all tasks
are added, so they must be on one scale (human-normalised, success rates).

    percentile    quantiles of the resampled aggregates; covers too little with few runs (docs/statistics.md)
    expanded      the same at wider levels, Φ(± √(n / (n - 1)) t(tasks (n - 1))) for n runs (Hesterberg 2015)

Resamples are a hash of seed, shape and number of the resample over columns in sorted order: they do not depend on the
order of runs, tasks or arms. One run gives the whole line (0 to 1 for a probability), constant scores an interval of no
width. Resampled aggregates may be biased, so an estimate can lie outside its interval. 1-D scores are one task's runs.

Axes: R run, K task, S resample, C checkpoint; `...` stands for S or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.ops import random
from assay.statistics.aggregates import (
    AGGREGATES,
    KERNELS,
    Kernel,
    Statistic,
    improvement_of,
    iqm_of,
    mean_of,
    median_of,
    optimality_gap_of,
    probability_of_improvement,
    tables,
)
from assay.statistics.intervals import Estimate, Values, checked
from assay.statistics.student import student_quantile

RESAMPLES = 10_000
BLOCK = 1 << 20  # scores that are resampled at once
METHODS = ("percentile", "expanded")
Bounds: TypeAlias = tuple[float, float]
WHOLE_LINE, SHARE = (-math.inf, math.inf), (0.0, 1.0)


# ---------------------------------------------------------------------------------------------------- bootstrap
@dataclass(frozen=True)
class Resampling:
    """Settings of the bootstrap; `paired` if run i of all arrays belongs together."""

    resamples: int = RESAMPLES
    level: float = 0.95
    seed: int = 0
    method: str = "percentile"
    paired: bool = False

    def __post_init__(self) -> None:
        checked(self.level)
        if isinstance(self.resamples, bool) or not isinstance(self.resamples, int | np.integer) or self.resamples < 1:
            raise AssayError(f"resamples must be a whole number of at least 1, got {self.resamples!r}: 10000 is usual")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            raise AssayError(f"the seed of a bootstrap must be a whole number, got {self.seed!r}: 0 is usual")
        if self.method not in METHODS:
            raise AssayError(f"the bootstrap has no method {self.method!r}: use one of {', '.join(METHODS)}")

    def estimates(self, kernel: Kernel, arrays: Sequence[Values], bounds: Bounds = WHOLE_LINE) -> list[Estimate]:
        """Computes the kernel on the arrays, flattened, with intervals; `bounds` are those of a single run."""
        values = np.ravel(kernel(*arrays))
        runs = min(array.shape[0] for array in arrays)
        if runs == 1:
            return [Estimate(float(value), *bounds, 1) for value in values]
        lows, highs = np.quantile(self.replicates(kernel, arrays), self.tails(arrays), axis=0)
        triples = zip(values, lows, highs, strict=True)
        return [Estimate(float(value), float(low), float(high), runs) for value, low, high in triples]

    def replicates(self, kernel: Kernel, arrays: Sequence[Values]) -> Values:
        """Computes the kernel on every resample of the arrays [R, K, ...]: [S, values]."""
        size = max(1, BLOCK // sum(array.size for array in arrays))
        starts = range(0, int(self.resamples), size)
        rows = [np.asarray(kernel(*drawn)).reshape(len(drawn[0]), -1) for drawn in self.drawn(arrays, starts)]
        return np.concatenate(rows)

    def drawn(self, arrays: Sequence[Values], starts: range) -> Iterator[list[Values]]:
        """Yields blocks of resampled arrays [S, R, K, ...], from each of the starts to the next."""
        groups = [list(arrays)] if self.paired else [[array] for array in arrays]
        orders = [canonical(np.concatenate([as_3d(each) for each in group], axis=2)) for group in groups]
        for start in starts:
            resample_S = np.arange(start, min(start + starts.step, starts.stop))
            block: list[Values] = []
            for stream, (group, (order_RK, rank_K)) in enumerate(zip(groups, orders, strict=True)):
                at = places(Draw(int(self.seed), (stream,)), resample_S, *order_RK.shape)[..., rank_K]
                at = np.take_along_axis(order_RK[None], at, axis=1)
                block += [np.take_along_axis(each[None], spread(at, each), axis=1) for each in group]
            yield block

    def tails(self, arrays: Sequence[Values]) -> tuple[float, float]:
        """Returns the two quantile levels of the interval."""
        low = 0.5 - self.level / 2
        if self.method == "expanded":
            runs, tasks = min(array.shape[0] for array in arrays), arrays[0].shape[1]
            wider = math.sqrt(runs / (runs - 1)) * student_quantile(1 - low, tasks * (runs - 1))
            low = NormalDist().cdf(-wider)
        return low, 1 - low


def bootstrap(
    statistic: Statistic,
    *arrays: ArrayLike,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
    method: str = "percentile",
    paired: bool = False,
) -> Estimate:
    """Computes a statistic of score tables with its interval from the stratified bootstrap.

    The aggregates of this module, also as `functools.partial(optimality_gap, target=...)`, run over all resamples at
    once; any other function of arrays [runs, tasks] to a number is called once per resample. Several arrays are drawn
    independently or, if `paired`, by the same runs: run i of all of them shares its seed.
    """
    if not arrays:
        raise AssayError("a bootstrap needs at least one array of scores, got none: bootstrap(iqm, scores)")
    samples = tables({f"array {place}": each for place, each in enumerate(arrays)}, paired=paired)
    kernel = vectorised(statistic, len(samples))
    bounds = SHARE if kernel is improvement_of else WHOLE_LINE
    return Resampling(resamples, level, seed, method, paired).estimates(kernel, samples, bounds)[0]


def places(draw: Draw, resample_S: NDArray[Any], runs: int, tasks: int) -> NDArray[Any]:
    """Returns the runs that each cell of each resample draws, [S, R, K]: a scaled hash of resample and cell."""
    words = random.hashed(draw.at(runs, tasks), resample_S[:, None], np.arange(runs * tasks)[None])
    scaled = ((words >> np.uint64(32)) * np.uint64(runs)) >> np.uint64(32)
    return scaled.astype(np.int64).reshape(-1, runs, tasks)


def vectorised(statistic: Statistic, num_arrays: int) -> Kernel:
    """Returns the statistic over the last two axes of its arrays, for all resamples at once if it is of this module."""
    plain: Statistic = statistic
    settings: dict[str, Any] = {}
    if isinstance(statistic, partial) and not statistic.args:
        plain, settings = statistic.func, statistic.keywords
    for known, kernel in KERNELS:
        if plain is known:
            if num_arrays != (needed := 2 if known is probability_of_improvement else 1):
                raise AssayError(f"{known.__name__} needs {needed} array(s) of scores, got {num_arrays}: pass {needed}")
            return partial(kernel, **settings) if settings else kernel

    def one_by_one(*arrays: Values) -> Values:
        if arrays[0].ndim == 2:
            return np.asarray(number(statistic(*arrays)))
        return np.asarray([number(statistic(*each)) for each in zip(*arrays, strict=True)])

    return one_by_one


def number(value: object) -> float:
    """Returns the value of a statistic; refuses anything but one finite number."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        got = repr(array.item()) if array.size == 1 else f"an array of shape {array.shape}"
        raise AssayError(f"a statistic must give one finite number for every resample, got {got}: fix it")
    return float(array.reshape(()))


def spread(places: NDArray[Any], array: Values) -> NDArray[Any]:
    """Expands indices over [.., R, K] for an array that may have a third axis."""
    return places if array.ndim == 2 else places[..., None]


def as_3d(array: Values) -> Values:
    """Returns [R, K] as [R, K, 1]."""
    return array.reshape(*array.shape[:2], -1)


def canonical(scores_RKC: Values) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the order that sorts the runs of every task [R, K], and the rank of every sorted task [K]."""
    order_RK = np.stack([np.lexsort(scores_RC.T[::-1]) for scores_RC in scores_RKC.swapaxes(0, 1)], axis=1)
    columns = np.take_along_axis(scores_RKC, order_RK[..., None], axis=0).swapaxes(0, 1).reshape(order_RK.shape[1], -1)
    return order_RK, np.argsort(np.lexsort(columns.T[::-1]))


# ---------------------------------------------------------------------------------------------------- comparison
@dataclass(frozen=True)
class Row:
    """One aggregate of one arm, and its difference from the baseline, if there is one."""

    arm: str
    aggregate: str
    estimate: Estimate
    difference: Estimate | None = None


@dataclass(frozen=True)
class Improvement:
    """The probability that a run of `arm` beats a run of `other`."""

    arm: str
    other: str
    estimate: Estimate


@dataclass(frozen=True)
class Comparison:
    """Every aggregate of every arm, and the probability of improvement of every ordered pair of arms."""

    rows: tuple[Row, ...]
    improvements: tuple[Improvement, ...]
    baseline: str | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        """Returns the names of the arms, in the order given."""
        return tuple(dict.fromkeys(row.arm for row in self.rows))

    def row(self, arm: str, aggregate: str) -> Row:
        """Returns the row of an arm and an aggregate."""
        for row in self.rows:
            if (row.arm, row.aggregate) == (arm, aggregate):
                return row
        raise AssayError(f"the comparison has no {aggregate!r} of {arm!r}: it has {', '.join(self.arms)}")

    def improvement(self, arm: str, other: str) -> Estimate:
        """Returns the probability that a run of `arm` beats a run of `other`."""
        for each in self.improvements:
            if (each.arm, each.other) == (arm, other):
                return each.estimate
        raise AssayError(f"the comparison has no pair {arm!r} and {other!r}: it has {', '.join(self.arms)}")

    def __str__(self) -> str:
        lines = []
        for row in self.rows:
            change = f"   {row.difference} from {self.baseline}" if row.difference else ""
            lines.append(f"{row.arm:24} {row.aggregate:16} {row.estimate}{change}")
        return "\n".join([*lines, *(f"P({each.arm} > {each.other}) = {each.estimate}" for each in self.improvements)])


def compare(
    scores: Mapping[str, ArrayLike],
    baseline: str | None = None,
    *,
    paired: bool = False,
    target: float = 1.0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
    method: str = "percentile",
) -> Comparison:
    """Computes all aggregates of every arm, differences from `baseline`, and probabilities of improvement.

    Arms share their tasks, in one order; run counts may differ. `paired` says that run i of all arms shares its seed:
    pairs of arms are then resampled by the same runs. P(y > x) is exactly 1 - P(x > y), interval included.
    """
    if not isinstance(scores, Mapping) or not scores:
        raise AssayError(f"compare needs a mapping from arm to scores [runs, tasks], got {scores!r:.60}: name the arms")
    if baseline is not None and baseline not in scores:
        raise AssayError(f"the baseline {baseline!r} is not an arm: name one of {', '.join(map(str, scores))}")
    arms = dict(zip(scores, tables(scores, paired=paired), strict=True))
    how = Resampling(resamples, level, seed, method, paired)
    kernel = partial(all_aggregates, target=target)
    rows = []
    for arm, table_RK in arms.items():
        own = how.estimates(kernel, [table_RK])
        change: Sequence[Estimate | None] = [None] * len(own)
        if baseline is not None and arm != baseline:
            change = how.estimates(lambda x, y: kernel(x) - kernel(y), [table_RK, arms[baseline]])
        rows += [Row(arm, *each) for each in zip(AGGREGATES, own, change, strict=True)]
    return Comparison(tuple(rows), tuple(improvements(arms, how)), baseline)


def all_aggregates(scores_RK: Values, target: float) -> Values:
    """Computes the aggregates of tables in the last two axes, in the order of AGGREGATES, along a new last axis."""
    gap = optimality_gap_of(scores_RK, target)
    return np.stack([iqm_of(scores_RK), median_of(scores_RK), mean_of(scores_RK), gap], axis=-1)


def improvements(arms: Mapping[str, Values], how: Resampling) -> Iterator[Improvement]:
    """Yields both directions of every pair; the one of the names in sorted order is computed."""
    known: dict[tuple[str, str], Estimate] = {}
    for x, y in combinations(sorted(arms, key=str), 2):
        (one,) = how.estimates(improvement_of, [arms[x], arms[y]], SHARE)
        known[x, y], known[y, x] = one, Estimate(1 - one.value, 1 - one.high, 1 - one.low, one.count)
    yield from (Improvement(x, y, known[x, y]) for x in arms for y in arms if x != y)


