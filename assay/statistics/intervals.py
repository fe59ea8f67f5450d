"""Confidence intervals for means and differences of means.

    values all 0 or 1     Wilson's score interval; differences by Newcombe's square-and-add (1998), paired or not
    2 to 9 values         Student's t: mean ± t(n - 1) s / √n
    10 to 1000 values     studentised bootstrap: mean - quantile of t* times s / √n, t* = (mean* - mean) / se*
    more                  Student's t again, which is the same by then and cheap

The bootstrap follows skewed values (returns with a ceiling, lengths) where Student's t covers too little: at 20
exponential values 94 % against 91 %. Its resamples are a hash of the count, so equal values give equal intervals in
every order and on every machine. A resample's standard error is at least a quarter of the sample's, since resamples of
nearly constant values have none.

Without values the mean is NaN; one value other than 0 and 1 has no spread: both intervals are the whole line. Equal
values other than 0 and 1 give an interval of width 0. All intervals assume independent values: several answers to one
prompt or several episodes of one seed are one value, their mean. `cluster_interval` takes all of them with labels of
what is independent, and counts those. An interval ends where the range of a score ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.ops import random
from assay.statistics.student import student_quantile

FEW, MANY, RESAMPLES = 10, 1000, 2000
Values: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True)
class Estimate:
    """A mean with its confidence interval and the number of values behind it."""

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return formatted(self)


@dataclass(frozen=True)
class Change:
    """One measure before and after, and its change: a row of the table at the end of a run."""

    name: str
    before: Estimate
    after: Estimate
    change: Estimate
    higher_is_better: bool = True

    @property
    def verdict(self) -> str:
        """Returns "better", "worse" or "no clear change", by the interval of the change."""
        if not (self.change.low > 0 or self.change.high < 0):
            return "no clear change"
        return "better" if (self.change.low > 0) == self.higher_is_better else "worse"


@dataclass(frozen=True)
class Series:
    """One line of a learning curve: a row of values for each seed over common x; NaN where it was not measured."""

    name: str
    x: Sequence[float]
    rows: Sequence[Sequence[float] | Values]

    @property
    def values(self) -> Values:
        """Returns values [seeds, points]; NaN for those that are not finite or too large to be drawn."""
        values = np.asarray(self.rows, dtype=np.float64).reshape(len(self.rows), len(self.x))
        return np.where(np.abs(values) < 1e100, values, np.nan)

    def middle(self) -> tuple[Values, Values]:
        """Returns x and the mean over seeds, at the points where some seed was measured."""
        counts = np.isfinite(self.values).sum(0)
        seen = counts > 0
        return np.asarray(self.x, dtype=np.float64)[seen], np.nansum(self.values, 0)[seen] / counts[seen]

    def band(self, level: float = 0.95) -> tuple[Values, Values, Values]:
        """Returns x, low and high end of the mean's interval, at the points where two or more seeds were measured."""
        seeds = [(x, column[np.isfinite(column)]) for x, column in zip(self.x, self.values.T, strict=True)]
        known = [(x, mean_interval(column, level, binary=False)) for x, column in seeds if column.size > 1]
        x, low, high = np.asarray([(x, each.low, each.high) for x, each in known]).reshape(-1, 3).T
        return x, low, high


Bounds: TypeAlias = "tuple[float, float] | None"


def measured_change(
    name: str,
    before: ArrayLike,
    after: ArrayLike,
    *,
    paired: bool,
    higher_is_better: bool = True,
    level: float = 0.95,
    labels: ArrayLike | None = None,
    bounds: Bounds = None,
) -> Change:
    """Returns the row for values before and after; `paired` if value i of both is of the same start, of which those
    with equal `labels` are not independent; `bounds` is the range of a value.
    """
    ends = widths(bounds)
    if labels is None or not repeats(labels):
        change = inside(difference_interval(after, before, paired=paired, level=level), ends)
    else:
        gained = finite(after, "values after") - finite(before, "values before")
        change = inside(mean_interval(by_cluster(gained, labels), level, binary=False), ends)
    first, last = (cluster_interval(values, labels, level, bounds) for values in (before, after))
    return Change(name, first, last, change, higher_is_better)


def cluster_interval(
    values: ArrayLike, labels: ArrayLike | None = None, level: float = 0.95, bounds: Bounds = None
) -> Estimate:
    """Returns the mean of all values with an interval over what is independent: values with equal labels count once.

    Values of clusters are linearised: v_g = mean + (sum_g - mean n_g) G / N. Where all values are 0 or 1, Wilson's
    interval has the effective count p (1 - p) / se^2 (z / t)^2 (Korn and Graubard 1998), at most N. With one value per
    label it is `mean_interval`. A single cluster has the interval of all possible values.
    """
    sample = finite(values, "values")
    if labels is None or not sample.size or not repeats(labels):
        return inside(mean_interval(sample, level), bounds)
    linear, mean, confidence = by_cluster(sample, labels), float(sample.mean()), checked(level)
    count = linear.size
    if is_binary(linear):
        return wilson(linear, confidence)
    if not is_binary(sample):
        return inside(mean_interval(linear, confidence, binary=False), bounds)
    if count == 1:
        return Estimate(mean, 0.0, 1.0, 1)
    error2 = float(linear.var(ddof=1)) / count
    shrunk = (NormalDist().inv_cdf(0.5 + confidence / 2) / student_quantile(0.5 + confidence / 2, count - 1)) ** 2
    effective = min(float(sample.size), mean * (1 - mean) / error2 * shrunk) if error2 > 0 else float(count)
    low, high = wilson_ends(mean, effective, confidence)
    return Estimate(mean, low, high, count)


def repeats(labels: ArrayLike) -> bool:
    """Returns whether some labels are equal."""
    given = np.asarray(labels).ravel()
    return np.unique(given).size < given.size


def by_cluster(sample: Values, labels: ArrayLike) -> Values:
    """Returns v_g = mean + (sum_g - mean n_g) G / N for each label: their mean is that of all values."""
    given = np.asarray(labels).ravel()
    if given.size != sample.size:
        raise AssayError(f"labels must be one for each value, got {given.size} for {sample.size} values")
    _, index, counts = np.unique(given, return_inverse=True, return_counts=True)
    sums, mean = np.bincount(index.ravel(), sample), float(sample.mean())
    if (counts == counts[0]).all():
        return np.asarray(sums / counts)
    return np.asarray(mean + (sums - mean * counts) * counts.size / sample.size)


def widths(bounds: Bounds) -> Bounds:
    """Returns the range of a difference of two values of a range."""
    return None if bounds is None else (bounds[0] - bounds[1], bounds[1] - bounds[0])


def inside(estimate: Estimate, bounds: Bounds) -> Estimate:
    """Returns the estimate with its interval cut to a range."""
    if bounds is None or not estimate.count:
        return estimate
    low, high = max(estimate.low, bounds[0]), min(estimate.high, bounds[1])
    return replace(estimate, low=min(low, estimate.value), high=max(high, estimate.value))


def mean_interval(values: ArrayLike, level: float = 0.95, *, binary: bool | None = None) -> Estimate:
    """Returns the mean with an interval that covers the true mean in `level` of all experiments.

    `binary` says whether the values can only be 0 and 1; by default it is inferred from the values.
    """
    sample = finite(values, "values")
    confidence = checked(level)
    if not sample.size:
        return Estimate(math.nan, -math.inf, math.inf, 0)
    if is_binary(sample) if binary is None else binary:
        return wilson(sample, confidence)
    mean, count = float(sample.mean()), sample.size
    if count == 1:
        return Estimate(mean, -math.inf, math.inf, 1)
    low, high = spread(sample, confidence)
    return Estimate(mean, min(low, mean), max(high, mean), count)


def difference_interval(
    a: ArrayLike, b: ArrayLike, *, paired: bool, level: float = 0.95, binary: bool | None = None
) -> Estimate:
    """Returns the mean of `a` minus the mean of `b`. Its count is the number of pairs, or of the smaller sample.

    Paired: value i of both comes from the same start or seed; not paired: Welch's t, degrees of freedom rounded down.
    `binary` says whether the values can only be 0 and 1; by default it is inferred from the values.
    """
    first, second = finite(a, "the first values"), finite(b, "the second values")
    confidence = checked(level)
    if paired and first.size != second.size:
        raise AssayError(f"paired values need equal counts, got {first.size} and {second.size}: use paired=False")
    count = int(min(first.size, second.size))
    if not count:
        return Estimate(math.nan, -math.inf, math.inf, 0)
    if (is_binary(first) and is_binary(second)) if binary is None else binary:
        return square_and_add(first, second, paired, confidence)
    if paired:
        return mean_interval(first - second, confidence, binary=False)
    value = float(first.mean() - second.mean())
    if count == 1:
        return Estimate(value, -math.inf, math.inf, count)
    half = welch_half_width(first, second, confidence)
    return Estimate(value, value - half, value + half, count)


# ---------------------------------------------------------------------------------------------------- words
def formatted(estimate: Estimate, *, signed: bool = False) -> str:
    """Formats an estimate as '0.42 [0.37, 0.47]', with decimals by the width of the interval."""
    if not estimate.count:
        return "no values"
    value, low, high = digits(estimate, signed=signed)
    return f"{value} [{low}, {high}]" if math.isfinite(estimate.low + estimate.high) else f"{value} (one value)"


def decimals_of(estimate: Estimate) -> int | None:
    """Returns the decimals of which the last is 5 % to 50 % of half the interval's width; None without a width."""
    half = (estimate.high - estimate.low) / 2
    is_wide = math.isfinite(half) and half > 1e-9 * abs(estimate.value)
    return math.ceil(-math.log10(half / 2) - 1e-9) if is_wide else None


def even_decimals(column: Iterable[Estimate]) -> int | None:
    """Returns the decimals of a whole column: those of its narrowest interval, at most one more than the widest needs;
    None if no estimate has a width.
    """
    known = [one for each in column if (one := decimals_of(each)) is not None]
    return min(max(known), min(known) + 1) if known else None


def digits(estimate: Estimate, *, signed: bool = False, decimals: int | None = None) -> tuple[str, str, str]:
    """Formats value, low and high end with equally many decimals: those given, or else by the width (`decimals_of`)."""
    decimals = decimals_of(estimate) if decimals is None else decimals
    value, low, high = (number(each, decimals, signed=signed) for each in (estimate.value, estimate.low, estimate.high))
    return value, low, high


def number(value: float, decimals: int | None = None, *, signed: bool = False) -> str:
    """Formats a number: with `decimals`, or four digits if not given; powers of ten for extreme ones."""
    sign = "+" if signed else ""
    size = abs(value)
    if decimals is None:
        decimals = max(0, 3 - math.floor(math.log10(size))) if 1e-5 <= size < 1e7 else 0
        text = f"{value:{sign}.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if decimals else text
    else:
        text = f"{value:{sign}.{max(0, decimals)}f}"
    is_extreme = size >= 1e7 or decimals > 6 or (0 < size < 1e-5 and decimals == 0)
    if not is_extreme:
        return text.replace("-", sign) if float(text) == 0 else text
    return f"{value:{sign}.3g}"


# ---------------------------------------------------------------------------------------------------- samples
def finite(values: ArrayLike, name: str) -> Values:
    """Returns the values as one float64 vector; refuses a NaN or infinite value and names its index."""
    try:
        sample = np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise AssayError(f"{name} must be numbers to have a mean ({error})") from error
    bad = np.flatnonzero(~np.isfinite(sample))
    if bad.size:
        some = ", ".join(f"{sample[place]} at place {place}" for place in bad[:3])
        share = f"{bad.size} of {sample.size}"
        raise AssayError(f"{name} must be finite to have a mean, got {some} ({share}): leave them out or fix them")
    return sample


def checked(level: float) -> float:
    """Returns the level; refuses one outside (0, 1)."""
    if not 0.0 < level < 1.0:
        raise AssayError(f"the level of an interval lies between 0 and 1, got {level}: 0.95 is usual")
    return level


def is_binary(sample: Values) -> bool:
    """Returns whether every value is 0 or 1."""
    return bool(((sample == 0.0) | (sample == 1.0)).all())


# ---------------------------------------------------------------------------------------------------- intervals
def wilson(sample: Values, level: float) -> Estimate:
    """Computes (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n); stays inside [0, 1] and is never empty."""
    share = float(sample.mean())
    return Estimate(share, *wilson_ends(share, sample.size, level), sample.size)


def wilson_ends(share: float, count: float, level: float) -> tuple[float, float]:
    """Returns the ends of Wilson's interval of a share among `count` trials, which may be an effective count."""
    z2 = NormalDist().inv_cdf(0.5 + level / 2) ** 2
    middle = share + z2 / (2 * count)
    half = math.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2)))
    low, high = ((middle + sign * half) / (1 + z2 / count) for sign in (-1, 1))
    return min(max(low, 0.0), share), max(min(high, 1.0), share)


def spread(sample: Values, level: float) -> tuple[float, float]:
    """Returns low and high end for at least two values of any kind."""
    count, mean = sample.size, float(sample.mean())
    error = float(sample.std(ddof=1)) / math.sqrt(count)
    if not error > 1e-12 * abs(mean):
        return mean, mean
    if FEW <= count <= MANY:
        low, high = np.quantile(bootstrap_t(sample, mean, error), (0.5 - level / 2, 0.5 + level / 2))
        return mean - float(high) * error, mean - float(low) * error
    half = student_quantile(0.5 + level / 2, count - 1) * error
    return mean - half, mean + half


def bootstrap_t(sample: Values, mean: float, error: float) -> Values:
    """Computes (mean* - mean) / se* for every resample; the order of the sample does not matter."""
    resamples = np.sort(sample)[resample_places(sample.size)]
    errors = resamples.std(1, ddof=1) / math.sqrt(sample.size)
    return np.asarray((resamples.mean(1) - mean) / np.maximum(errors, error / 4))


@lru_cache(maxsize=2)
def resample_places(count: int) -> NDArray[Any]:
    """Returns the places that each resample draws from, by a hash of the count."""
    return random.integers(Draw(0, (count,)), count, RESAMPLES * count).reshape(RESAMPLES, count)


def welch_half_width(first: Values, second: Values, level: float) -> float:
    """Computes t(dof) √(s1²/n1 + s2²/n2), dof by Welch and Satterthwaite."""
    parts = [float(sample.var(ddof=1)) / sample.size for sample in (first, second)]
    total = sum(parts)
    if total <= 0:
        return 0.0
    dof = total**2 / sum(part**2 / (sample.size - 1) for part, sample in zip(parts, (first, second), strict=True))
    return student_quantile(0.5 + level / 2, max(1, math.floor(dof))) * math.sqrt(total)


def square_and_add(first: Values, second: Values, paired: bool, level: float) -> Estimate:
    """Computes Newcombe's interval for a difference of shares, from the two Wilson intervals and their correlation."""
    a, b = wilson(first, level), wilson(second, level)
    phi = correlation(first, second) if paired else 0.0
    below, above = (a.value - a.low, b.high - b.value), (a.high - a.value, b.value - b.low)
    down, up = (math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y)) for x, y in (below, above))
    value = a.value - b.value
    return Estimate(value, max(-1.0, value - down), min(1.0, value + up), min(a.count, b.count))


def correlation(first: Values, second: Values) -> float:
    """Computes Newcombe's phi of two paired 0/1 samples, shrunk to zero by half a pair; 0 if one is constant."""
    both, only_first = float((first * second).sum()), float((first * (1 - second)).sum())
    only_second, neither = float((second * (1 - first)).sum()), float(((1 - first) * (1 - second)).sum())
    margins = (both + only_first) * (only_second + neither) * (both + only_second) * (only_first + neither)
    if margins == 0:
        return 0.0
    cross = both * neither - only_first * only_second
    return (max(cross - first.size / 2, 0.0) if cross > 0 else cross) / math.sqrt(margins)
