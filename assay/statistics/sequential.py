"""How many seeds are enough: AdaStop, a group-sequential permutation test with family-wise error control.

At interim k = 1..K every arm that is still compared has n new scores. For a pair (a, b) of arms

    S_k = Σ_{j <= k} (mean of a's scores of interim j - mean of b's),    T_k = |S_k|

and its null distribution is that of S_k when the 2n scores of each interim are permuted, with one permutation for all
pairs. The boundary is the smallest value that keeps the error spent so far within its budget:

    spent_{k-1} + P(max over undecided pairs |S_k*| > boundary_k, never above an earlier boundary) <= alpha k / K

The pair with the largest T_k is decided if that exceeds the boundary; then the others are tried again without it
(step-down). Pairs still undecided after K interims are called equal. With beta > 0 a pair whose T_k lies below the
share beta k / K of the null may be called equal early, which saves runs and costs power. For one pair it cannot raise
the error; with several, the pairs left are tested as if the accepted one had never been compared.

Source: Mathieu et al. 2023, arXiv:2306.10882. All C(2n, n)^k choices are enumerated while there are at most
`permutations` of them, afterwards that many are drawn by a hash of `seed`, the observed one included. Assumes that the
scores of an arm are independent. If equal arms have the same distribution, the level of the permutations is exact for
one pair and holds for several as n grows: measured 6.0 % for five arms at alpha = 5 %, n = 5.

Arms of equal mean and other spread or skewness are not exchangeable: five scores of one arm may have one sign and so be
the most extreme of 252 shares. Studentising does not help, since with equally many scores Welch's t is a function of S
and of a sum that no permutation changes. So a pair is told apart only if Welch's t, with its own degrees of freedom,
and Hall's correction of it for skewness (1992) reject too, at the level that the permutations have for this pair
divided by `safety`. Measured at alpha = 5 %: docs/statistics-sequential.md.

Departures from the package `adastop` 0.1.3. (1) Its null is the largest signed sum while its statistic is absolute,
which spends up to 2 alpha: two equal arms with n = 5, K = 1, alpha = 0.05 differ in 24 of 252 cases (9.5 %).
`signed_null` repeats it. (2) When it stops enumerating it continues with one random continuation for each choice left;
here `permutations` fresh ones are drawn, so the boundary stays as fine. (3) Values equal up to rounding are ties.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.ops import random
from assay.statistics.intervals import Values, finite
from assay.statistics.student import student_quantile

ROUNDING = 1e-10  # of the largest sum: differences below it are ties
Masks = NDArray[np.bool_]
Pair = tuple[str, str]


class Verdict(Enum):
    """The verdict on the first arm of a pair against the second."""

    LARGER = "larger"
    SMALLER = "smaller"
    EQUAL = "equal"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class SequentialTest:
    """The plan, fixed before the first run: n scores per arm and interim, at most K interims, total error alpha.

    Empty `comparisons` means all pairs of the arms in the order of the scores. `safety` divides the level at which
    Welch's and Hall's t must reject too; 0 leaves them out, as in the paper. `signed_null` is the package's rule.
    """

    size: int = 5
    interims: int = 5
    alpha: float = 0.05
    beta: float = 0.0
    comparisons: tuple[Pair, ...] = ()
    permutations: int = 10_000
    seed: int = 0
    safety: float = 2.0
    signed_null: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (
            ("size", self.size, 1), ("interims", self.interims, 1), ("permutations", self.permutations, 2)
        ):  # fmt: skip
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise AssayError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if not 0.0 < self.alpha < 1.0:
            raise AssayError(f"alpha must lie between 0 and 1, got {self.alpha}: 0.05 is usual")
        if not 0.0 <= self.beta < 1.0:
            raise AssayError(f"beta must be at least 0 and below 1, got {self.beta}: 0 never accepts early")
        if not 0.0 <= self.safety < math.inf:
            raise AssayError(f"safety must be 0 or more, got {self.safety}: 2 is usual, 0 leaves the bound out")
        seen: set[frozenset[str]] = set()
        for pair in self.comparisons:
            if len(pair) != 2 or pair[0] == pair[1] or frozenset(pair) in seen:
                raise AssayError(f"comparisons must be pairs of two different arms, each once, got {pair!r}")
            seen.add(frozenset(pair))


@dataclass(frozen=True)
class Comparison:
    """One pair: the verdict, the interim (from 1) that gave it, and T over the scores used; 0 and NaN before any."""

    first: str
    second: str
    verdict: Verdict
    interim: int
    statistic: float


@dataclass(frozen=True)
class Interim:
    """One interim analysis: the bounds between which a pair stays undecided, the error spent, the pairs left."""

    accept_below: float
    reject_above: float
    level_spent: float
    power_spent: float
    undecided: tuple[Pair, ...]


@dataclass(frozen=True)
class Decision:
    """The state of the test. `needs` holds the arms to run further, and the scores missing until the next interim."""

    comparisons: tuple[Comparison, ...]
    needs: Mapping[str, int]
    interims: tuple[Interim, ...]

    @property
    def finished(self) -> bool:
        """Returns whether every pair has a verdict."""
        return all(each.verdict is not Verdict.UNDECIDED for each in self.comparisons)

    def verdict(self, first: str, second: str) -> Verdict:
        """Returns the verdict on `first` against `second`, in either order of the plan."""
        turned = {Verdict.LARGER: Verdict.SMALLER, Verdict.SMALLER: Verdict.LARGER}
        for each in self.comparisons:
            if (each.first, each.second) == (first, second):
                return each.verdict
            if (each.first, each.second) == (second, first):
                return turned.get(each.verdict, each.verdict)
        raise AssayError(f"{first!r} and {second!r} are not compared: name them in comparisons")


def decide(test: SequentialTest, scores: Mapping[str, Sequence[float]]) -> Decision:
    """Replays the test on the scores so far, in their order: equal scores give equal decisions.

    An interim waits until all arms of undecided pairs have n scores for it; scores of arms that are already decided,
    and scores beyond the last interim, are ignored. Equal arms in every score tie and end as equal.
    """
    samples, pairs = checked_scores(test, scores)
    found = {pair: Comparison(*pair, Verdict.UNDECIDED, 0, math.nan) for pair in pairs}
    looks: list[Interim] = []
    left = pairs
    while left and len(looks) < test.interims:
        end = (len(looks) + 1) * test.size
        if any(samples[arm].size < end for pair in left for arm in pair):
            break
        left, decided, look = looked(test, samples, left, looks)
        looks.append(look)
        found.update({each: Comparison(*each, verdict, len(looks), size) for each, verdict, size in decided})
    end = (len(looks) + 1) * test.size
    arms = dict.fromkeys(arm for pair in left for arm in pair)
    return Decision(tuple(found.values()), {arm: max(0, end - samples[arm].size) for arm in arms}, tuple(looks))


def looked(
    test: SequentialTest, samples: Mapping[str, Values], pairs: tuple[Pair, ...], before: Sequence[Interim]
) -> tuple[tuple[Pair, ...], list[tuple[Pair, Verdict, float]], Interim]:
    """Computes the next interim: the pairs left undecided, those decided with verdict and statistic, and its record."""
    number = len(before) + 1
    sums, kept = null_sums(test, samples, pairs, before)
    total = kept.size
    spent, power = (before[-1].level_spent, before[-1].power_spent) if before else (0.0, 0.0)
    observed = {pair: observed_sum(test, samples, pair, number) for pair in pairs}
    slack = ROUNDING * max((abs(each) for each in observed.values()), default=0.0)
    decided: list[tuple[Pair, Verdict, float]] = []
    left = pairs
    accept, reject, level_used, power_used = -math.inf, math.inf, 0.0, 0.0
    while left:
        null = np.sort(np.max([sums[pair][kept] for pair in left], axis=0))
        reject, level_used = upper(null, total, test.alpha * number / test.interims - spent)
        accept, power_used = lower(null, total, test.beta * number / test.interims - power)
        smallest = min(left, key=lambda p: abs(observed[p]))
        apart = [
            pair
            for pair in left
            if abs(observed[pair]) > reject + slack
            and is_safe(test, samples, pair, number, float(np.mean(sums[pair] > reject + slack)))
        ]
        if apart:
            chosen = max(apart, key=lambda p: abs(observed[p]))
            verdict = Verdict.LARGER if observed[chosen] > 0 else Verdict.SMALLER
        elif abs(observed[smallest]) < accept - slack:
            chosen, verdict = smallest, Verdict.EQUAL
        else:
            break
        decided.append((chosen, verdict, abs(observed[chosen])))
        left = tuple(pair for pair in left if pair != chosen)
    look = Interim(accept, reject, spent + level_used, power + power_used, left)
    if number == test.interims:
        decided += [(pair, Verdict.EQUAL, abs(observed[pair])) for pair in left]
        left = ()
    return left, decided, look


def upper(null: Values, total: int, budget: float) -> tuple[float, float]:
    """Returns the smallest of the sorted null values with at most `budget` of `total` above it, and that share."""
    above = np.arange(null.size)[::-1] / total
    fits = np.flatnonzero(above <= budget + 1e-12)
    return (float(null[fits[0]]), float(above[fits[0]])) if fits.size else (math.inf, 0.0)


def lower(null: Values, total: int, budget: float) -> tuple[float, float]:
    """Returns the largest of the sorted null values with less than `budget` of `total` below it, and that share."""
    below = np.arange(null.size) / total
    fits = np.flatnonzero(below < budget - 1e-12)
    return (float(null[fits[-1]]), float(below[fits[-1]])) if fits.size else (-math.inf, 0.0)


# ---------------------------------------------------------------------------------------------------- the bound
def is_safe(test: SequentialTest, samples: Mapping[str, Values], pair: Pair, number: int, level: float) -> bool:
    """Returns whether Welch's t over the first `number` interims, and the same with Hall's correction for skewness,
    reject at the level that the permutations have for this pair, divided by the test's `safety`.

        t = gap / e,   d = third central moment of gap / e^3,   t + d t^2 / 3 + d^2 t^3 / 27 + d / 6

    Degenerate: arms without spread are safe to tell apart; with fewer than two scores an arm, or a level of 0, none.
    """
    if test.signed_null or test.safety == 0:
        return True
    values = [samples[arm][: number * test.size] for arm in pair]
    count = number * test.size
    if count < 2 or level <= 0.0:
        return False
    variances = [float(one.var(ddof=1)) / count for one in values]
    error = math.sqrt(sum(variances))
    gap = float(values[0].mean() - values[1].mean())
    if error <= ROUNDING * abs(gap):
        return True
    freedom = sum(variances) ** 2 * (count - 1) / sum(one**2 for one in variances)
    thirds = [float(((one - one.mean()) ** 3).mean()) / count**2 for one in values]
    t, d = gap / error, (thirds[0] - thirds[1]) / error**3
    bound = student_quantile(1.0 - level / test.safety / 2.0, max(1, math.floor(freedom)))
    return min(abs(t), abs(t + d * t**2 / 3.0 + d**2 * t**3 / 27.0 + d / 6.0)) > bound


# ---------------------------------------------------------------------------------------------------- the null
def null_sums(
    test: SequentialTest, samples: Mapping[str, Values], pairs: tuple[Pair, ...], before: Sequence[Interim]
) -> tuple[dict[Pair, Values], Masks]:
    """Returns the sums of each pair over all choices, and bool [choices]: those that no earlier boundary stopped.

    Exact choices are the digits of their number in base C(2n, n), one digit per interim.
    """
    number, ways = len(before) + 1, math.comb(2 * test.size, test.size)
    exact = ways**number <= test.permutations
    total = ways**number if exact else test.permutations
    kept = np.ones(total, dtype=bool)
    followed = [look.undecided for look in before] + [pairs]  # never grows: what was decided is not followed on
    sums = {pair: np.zeros(total) for pair in followed[0]}
    for interim in range(number):
        if exact:
            rows, masks = (np.arange(total) // ways**interim) % ways, every_choice(test.size)
        else:
            rows, masks = np.arange(total), drawn_choices(test.size, total, test.seed, interim)
        for pair in followed[interim]:
            sums[pair] += shared_out(test, samples, pair, interim, masks)[rows]
        if interim < len(before):
            now = np.max([np.abs(sums[pair]) for pair in followed[interim]], axis=0)
            kept &= now <= before[interim].reject_above + ROUNDING * float(now.max())
    return {pair: sums[pair] if test.signed_null else np.abs(sums[pair]) for pair in pairs}, kept


def shared_out(test: SequentialTest, samples: Mapping[str, Values], pair: Pair, interim: int, masks: Masks) -> Values:
    """Computes the mean of the chosen scores minus that of the others, for every choice of n of 2n scores."""
    part = slice(interim * test.size, (interim + 1) * test.size)
    both = np.concatenate([samples[arm][part] for arm in pair])
    return np.asarray((2.0 * masks - 1.0) @ both / test.size)


def observed_sum(test: SequentialTest, samples: Mapping[str, Values], pair: Pair, number: int) -> float:
    """Computes S over the first `number` interims from the observed scores."""
    first, second = (samples[arm][: number * test.size] for arm in pair)
    return float((first - second).sum() / test.size)


@lru_cache(maxsize=8)
def every_choice(size: int) -> Masks:
    """Returns all C(2n, n) choices of n places of 2n, the places of the first arm first."""
    places = np.asarray(list(itertools.combinations(range(2 * size), size)))
    masks = np.zeros((len(places), 2 * size), dtype=bool)
    np.put_along_axis(masks, places, True, axis=1)
    return masks


@lru_cache(maxsize=64)
def drawn_choices(size: int, count: int, seed: int, interim: int) -> Masks:
    """Draws `count` random choices, the first of them the observed one: row r is a hash of seed, interim and r."""
    rows, places = np.arange(count)[:, None], np.arange(2 * size)[None, :]
    order = np.argsort(random.hashed(Draw(seed, (interim,)), rows, places), axis=1, kind="stable")
    masks = np.zeros((count, 2 * size), dtype=bool)
    np.put_along_axis(masks, order[:, :size], True, axis=1)
    masks[0] = np.arange(2 * size) < size
    return masks


# ---------------------------------------------------------------------------------------------------- input
def checked_scores(
    test: SequentialTest, scores: Mapping[str, Sequence[float]]
) -> tuple[dict[str, Values], tuple[Pair, ...]]:
    """Returns finite scores by arm, and the pairs to compare."""
    if len(scores) < 2:
        raise AssayError(f"scores must hold at least two arms, got {len(scores)}: add an arm, without scores at first")
    samples = {arm: finite(values, f"the scores of {arm!r}") for arm, values in scores.items()}
    unknown = [arm for pair in test.comparisons for arm in pair if arm not in samples]
    if unknown:
        raise AssayError(f"comparisons name {unknown[0]!r}, which has no scores: the arms are {', '.join(samples)}")
    return samples, test.comparisons or tuple(itertools.combinations(samples, 2))
