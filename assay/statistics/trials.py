"""Blind, randomised, paired trials of success: a schedule and its key, exact tests, a compact letter display.

    schedule   every arm meets every item once, with the item's seed; items and arms within an item come in random
               order, and a trial shows a token instead of an arm. The judge must not have the key.
    unblind    outcomes by token become outcomes by arm, in the order of the items
    compared   an exact test for each pair, Holm's adjustment over pairs, a compact letter display: arms that share a
               letter do not differ significantly

Source of the protocol: TRI LBM Team 2025, arXiv:2507.05331, which reports Beta(1 + s, 1 + n - s) posteriors. Tests:
McNemar's in its exact binomial form for paired outcomes, Barnard's (1945, pooled score statistic) for unpaired ones,
Fisher's beside them. Letters: Piepho 2004. Assumes that items are independent of each other, and that an item that two
arms met is the same item.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.ops import random
from assay.statistics.intervals import Estimate, Values, checked, finite, is_binary

GRID = 1001  # success rates at which Barnard's test looks for its worst case, before it refines


@dataclass(frozen=True)
class BlindTrial:
    """One trial as the judge sees it: where to report the outcome, which item, which seed. No arm."""

    token: str
    item: int
    seed: int


@dataclass(frozen=True)
class Key:
    """Which arm hides behind each token, and the item it met."""

    arms: Mapping[str, str]
    items: Mapping[str, int]


@dataclass(frozen=True)
class PairResult:
    """One pair: success rates, the exact p-value, the same after Holm, and whether the two differ significantly."""

    first: str
    second: str
    rates: tuple[float, float]
    p_value: float
    adjusted: float
    different: bool


@dataclass(frozen=True)
class TrialReport:
    """Posterior interval of each arm, all pairs, and letters: arms that share one do not differ significantly."""

    rates: Mapping[str, Estimate]
    pairs: tuple[PairResult, ...]
    letters: Mapping[str, str]


# ---------------------------------------------------------------------------------------------------- schedule
def scheduled(arms: Sequence[str], items: int, seed: int) -> tuple[tuple[BlindTrial, ...], Key]:
    """Returns the trials in the order to run them, and the key: both a hash of the seed, which is as secret as the key.

    All arms meet an item one after the other with the same seed, so that drift of the setting over a day is shared.
    """
    if len(arms) < 2 or len(set(arms)) != len(arms):
        raise AssayError(f"arms must be two or more different names, got {list(arms)}: name each arm once")
    if isinstance(items, bool) or not isinstance(items, int) or items < 1:
        raise AssayError(f"items must be a whole number of at least 1, got {items!r}")
    draw = Draw(seed)
    trials, hidden, met = [], {}, {}
    for item in random.permutation(draw.at(0), items).tolist():
        for arm in random.permutation(draw.at(1, item), len(arms)).tolist():
            token = f"{int(random.hashed(draw.at(2, item, arm))):016x}"
            trials.append(BlindTrial(token, item, int(random.hashed(draw.at(3, item)) >> np.uint64(33))))
            hidden[token], met[token] = arms[arm], item
    order = sorted(hidden)  # by token, so that the key says nothing of the order
    return tuple(trials), Key({token: hidden[token] for token in order}, {token: met[token] for token in order})


def unblinded(key: Key, outcomes: Mapping[str, float]) -> dict[str, Values]:
    """Returns the outcomes of each arm by item, 0 or 1. Every token needs one, which prevents optional stopping."""
    unknown, open_ = sorted(set(outcomes) - set(key.arms)), sorted(set(key.arms) - set(outcomes))
    if unknown:
        raise AssayError(
            f"outcomes name the token {unknown[0]!r}, which is not in the key: use the key of this schedule"
        )
    if open_:
        raise AssayError(
            f"{len(open_)} of {len(key.arms)} trials have no outcome, among them {open_[0]!r}: run them first"
        )
    found = {arm: np.zeros(max(key.items.values()) + 1) for arm in sorted(set(key.arms.values()))}
    for token, arm in key.arms.items():
        found[arm][key.items[token]] = float(successes([outcomes[token]], f"the outcome of {token!r}")[0])
    return found


# ---------------------------------------------------------------------------------------------------- tests
def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Computes the two-sided exact p for paired outcomes: 2 P(Binomial(b + c, 1/2) <= min(b, c)), at most 1.

    b and c count the items that only one of the two solved; without any p is 1.
    """
    a, b = successes(first, "first"), successes(second, "second")
    if a.size != b.size:
        raise AssayError(f"paired outcomes need equal items, got {a.size} and {b.size}: use barnard for unpaired ones")
    only_first, only_second = int((a > b).sum()), int((b > a).sum())
    total = only_first + only_second
    tail = sum(math.comb(total, each) for each in range(min(only_first, only_second) + 1))
    return min(1.0, float(2 * tail / 2**total)) if total else 1.0


def fisher(right: int, count: int, other_right: int, other_count: int) -> float:
    """Computes the two-sided p given both margins: the probability of all tables no likelier than this one."""
    check_table(right, count, other_right, other_count)
    solved, total = right + other_right, math.comb(count + other_count, right + other_right)
    ways = [math.comb(count, each) * math.comb(other_count, solved - each) for each in range(solved + 1)]
    return min(1.0, sum(way for way in ways if way <= ways[right]) / total)


def barnard(right: int, count: int, other_right: int, other_count: int) -> float:
    """Computes the two-sided p without fixed margins: the largest probability, over the common success rate, of a score
    this large.

    Score: |p1 - p2| / √(p (1 - p) (1/n1 + 1/n2)), p pooled, 0 if p is 0 or 1. Usually more powerful than Fisher's test,
    since it does not condition on the total.
    """
    check_table(right, count, other_right, other_count)
    scores = pooled_scores(count, other_count)
    extreme = (scores >= scores[right, other_right] - 1e-9).astype(np.float64)
    rates = np.linspace(0.0, 1.0, GRID)
    step = rates[1]
    for _ in range(4):
        chances = ((binomial(count, rates) @ extreme) * binomial(other_count, rates)).sum(1)
        best = rates[int(chances.argmax())]
        rates = np.clip(np.linspace(best - step, best + step, 41), 0.0, 1.0)
        step /= 20
    return min(1.0, float(chances.max()))


def pooled_scores(count: int, other_count: int) -> Values:
    """Computes Barnard's statistic of every table: successes of the one by successes of the other."""
    one, other = np.arange(count + 1)[:, None], np.arange(other_count + 1)[None, :]
    pooled = (one + other) / (count + other_count)
    spread = np.sqrt(pooled * (1 - pooled) * (1 / count + 1 / other_count))
    gaps = np.abs(one / count - other / other_count)
    return np.divide(gaps, spread, out=np.zeros_like(gaps), where=spread > 0)


def binomial(count: int, rates: Values) -> Values:
    """Computes the probabilities of 0..n successes: rates by successes."""
    successes_ = np.arange(count + 1)
    logs = np.asarray([math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in successes_])
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = successes_ * np.log(rates)[:, None], (count - successes_) * np.log1p(-rates)[:, None]
    return np.asarray(np.exp(logs + np.nan_to_num(parts[0], neginf=-np.inf) + np.nan_to_num(parts[1], neginf=-np.inf)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Computes adjusted p-values: p(i) (m - i + 1) in order of size, running maximum, at most 1 (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = largest
    return adjusted


# ---------------------------------------------------------------------------------------------------- intervals
def clopper_pearson(right: int, count: int, level: float = 0.95) -> Estimate:
    """Computes the interval of at least `level`: quantiles of Beta(s, n - s + 1) and Beta(s + 1, n - s) (1934)."""
    check_table(right, count, 0, 1)
    tail = (1 - checked(level)) / 2
    low = beta_quantile(tail, right, count - right + 1) if right else 0.0
    high = beta_quantile(1 - tail, right + 1, count - right) if right < count else 1.0
    return Estimate(right / count, low, high, count)


def posterior(right: int, count: int, level: float = 0.95) -> Estimate:
    """Computes the posterior mean (s + 1) / (n + 2) and central interval of Beta(1 + s, 1 + n - s)."""
    check_table(right, count, 0, 1)
    tail = (1 - checked(level)) / 2
    ends = [beta_quantile(prob, right + 1, count - right + 1) for prob in (tail, 1 - tail)]
    return Estimate((right + 1) / (count + 2), ends[0], ends[1], count)


def chance_better(right: int, count: int, other_right: int, other_count: int) -> float:
    """Computes P(p1 > p2) under uniform priors: Σ_{i <= s1} B(a + i, b + d) / ((d + i) B(1 + i, d) B(a, b))."""
    check_table(right, count, other_right, other_count)
    a, b, d = other_right + 1, other_count - other_right + 1, count - right + 1
    logs = [
        log_beta(a + i, b + d) - math.log(d + i) - log_beta(1 + i, d) - log_beta(a, b) for i in range(right + 1)
    ]  # fmt: skip
    return min(1.0, math.fsum(map(math.exp, logs)))


def log_beta(a: int, b: int) -> float:
    """Computes the logarithm of the beta function."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def beta_quantile(prob: float, a: int, b: int) -> float:
    """Computes a quantile of a beta with whole parameters by bisection; its cdf is P(Binomial(a + b - 1, x) >= a)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        below = float(binomial(a + b - 1, np.asarray([middle]))[0, a:].sum())
        low, high = (middle, high) if below < prob else (low, middle)
    return (low + high) / 2


# ---------------------------------------------------------------------------------------------------- many arms
def compared(
    outcomes: Mapping[str, ArrayLike], *, paired: bool, alpha: float = 0.05, level: float = 0.95
) -> TrialReport:
    """Tests all pairs by McNemar (paired) or Barnard; they differ if Holm's adjusted p is at most alpha."""
    if len(outcomes) < 2:
        raise AssayError(f"outcomes must hold at least two arms, got {len(outcomes)}: add the arm to compare with")
    if not 0.0 < alpha < 1.0:
        raise AssayError(f"alpha must lie between 0 and 1, got {alpha}: 0.05 is usual")
    samples = {arm: successes(values, f"the outcomes of {arm!r}") for arm, values in outcomes.items()}
    sums = {arm: (int(sample.sum()), sample.size) for arm, sample in samples.items()}
    pairs = list(itertools.combinations(samples, 2))
    raw = [mcnemar(samples[a], samples[b]) if paired else barnard(*sums[a], *sums[b]) for a, b in pairs]
    results = []
    for (a, b), p_value, adjusted in zip(pairs, raw, holm(raw), strict=True):
        rates = (sums[a][0] / sums[a][1], sums[b][0] / sums[b][1])
        results.append(PairResult(a, b, rates, p_value, adjusted, adjusted <= alpha))
    ranked = sorted(samples, key=lambda arm: -sums[arm][0] / sums[arm][1])
    told = [(each.first, each.second) for each in results if each.different]
    return TrialReport({arm: posterior(*sums[arm], level) for arm in samples}, tuple(results), letters(ranked, told))


def letters(arms: Sequence[str], different: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Returns a compact letter display by insert and absorb: two arms share a letter iff not in `different`."""
    groups = [frozenset(arms)]
    for a, b in different:
        split = [part for group in groups for part in ((group - {a}, group - {b}) if {a, b} <= group else (group,))]
        unique = list(dict.fromkeys(split))
        groups = [group for group in unique if not any(group < other for other in unique)]
    groups.sort(key=lambda group: [place for place, arm in enumerate(arms) if arm in group])
    return {arm: "".join(letter(place) for place, group in enumerate(groups) if arm in group) for arm in arms}


def letter(place: int) -> str:
    """Returns a to z, then a1, b1, ..."""
    return chr(ord("a") + place % 26) + (str(place // 26) if place >= 26 else "")


# ---------------------------------------------------------------------------------------------------- input
def successes(values: ArrayLike, name: str) -> Values:
    """Returns the outcomes; refuses others than 0 and 1, and an empty list."""
    sample = finite(values, name)
    if not sample.size:
        raise AssayError(f"{name} must hold at least one trial, got none: run some or leave the arm out")
    if not is_binary(sample):
        bad = sample[(sample != 0) & (sample != 1)][0]
        raise AssayError(f"{name} must be 0 or 1, got {bad}: decide what counts as a success")
    return sample


def check_table(right: int, count: int, other_right: int, other_count: int) -> None:
    """Refuses anything but whole counts of successes among trials."""
    for successes_, trials in ((right, count), (other_right, other_count)):
        if any(isinstance(each, bool) or not isinstance(each, int | np.integer) for each in (successes_, trials)):
            raise AssayError(f"successes and trials must be whole numbers, got {successes_!r} of {trials!r}")
        if trials < 1 or not 0 <= successes_ <= trials:
            raise AssayError(f"successes must lie between 0 and at least 1 trial, got {successes_} of {trials}")
