"""Statistics of many samples per problem: pass@k, majority votes, coverage, and where a base model overtakes.

    pass@k      1 - C(n - c, k) / C(n, k): the share of k-subsets of n samples that hold one of the c correct ones
    maj@k       the chance that the commonest answer of a random k-subset is right; m tied answers win 1/m each
    crossover   the k from which the base stays ahead of the trained model, up to the largest k that was sampled

Sources: Chen et al. 2021 (arXiv:2107.03374) for the estimator, Wang et al. 2022 (arXiv:2203.11171) for the vote, Yue et
al. 2025 (arXiv:2504.13837) for the comparison of a base with a trained model. All of it assumes that the n samples of a
problem are independent draws of one policy, and that the problems are independent of each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import AssayError
from assay.statistics.intervals import Estimate, Values, checked

Counts = NDArray[np.int64]
RESAMPLES = 2000


class Vary(Enum):
    """What a repeated experiment would draw again, and so what an interval is about.

    PROBLEMS    problems of the same kind, each with samples of its own. A problem's estimate carries the noise of its
                samples already, so drawing problems alone covers both levels (Davison & Hinkley 1997, section 3.8).
    SAMPLES     the same problems, sampled again: the uncertainty of the score on this benchmark. Covers too little for
                k near n (about 70 % instead of 95 % at k = n = 64), where problems with c = 0 or few right ones decide.
    BOTH        problems and then samples within them, the default. Counts the noise of the samples twice, so it is
                never narrower than PROBLEMS: 1 % to 5 % wider at 16 to 64 samples, more with fewer.
    """

    PROBLEMS = "problems"
    SAMPLES = "samples"
    BOTH = "both"


@dataclass(frozen=True)
class Coverage:
    """Places of the problems that both, only the first, only the second, or neither solved at least once."""

    both: tuple[int, ...]
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    neither: tuple[int, ...]

    @property
    def overlap(self) -> float:
        """Returns the share of problems solved by both among those solved by either (Jaccard); NaN without any."""
        solved = len(self.both) + len(self.only_first) + len(self.only_second)
        return len(self.both) / solved if solved else math.nan


@dataclass(frozen=True)
class Crossover:
    """The k from which the base stays ahead; None is never, as an end of the interval too.

    `share` is the share of resamples in which the base overtakes at all; `largest` is the largest k looked at.
    """

    k: int | None
    low: int | None
    high: int | None
    share: float
    largest: int


# ---------------------------------------------------------------------------------------------------- pass@k
def pass_at_k(samples: ArrayLike, correct: ArrayLike, k: ArrayLike) -> Values:
    """Computes 1 - Π_{j<k} (n - c - j) / (n - j), unbiased for 1 - (1 - p)^k, from n samples of which c are correct:
    problems by ks, with an axis only for arguments that are lists.

    The product needs no factorial, so n = 10000 is exact to rounding; with n - c < k it is 1, with c = 0 it is 0.
    """
    right, drawn, ks = checked_counts(correct, samples, k)
    values = 1.0 - missing(right, drawn, ks)
    scalars = tuple(axis for axis, given in enumerate((correct, k)) if np.ndim(given) == 0)
    return np.asarray(values.squeeze(axis=scalars))


def pass_at_k_intervals(
    samples: ArrayLike,
    correct: ArrayLike,
    k: ArrayLike,
    *,
    level: float = 0.95,
    vary: Vary = Vary.BOTH,
    seed: int = 0,
) -> tuple[Estimate, ...]:
    """Estimates the mean pass@k over problems with a bootstrap interval, for each k; its count is that of problems.

    A resample draws problems with replacement, or c* of a problem from Binomial(n, c / n), or first one and then the
    other (`vary`). pass@k of c* is not centred at pass@k of c but at 1 - (1 - c / n)^k, so the interval is the estimate
    plus the quantiles of the deviation from that centre, cut to [0, 1]. A single problem has no spread over problems:
    its interval is [0, 1] unless only samples vary. Problems that are all never or all always solved give no width,
    which says that the resampling saw no spread, not that it is zero.
    """
    right, drawn, ks = checked_counts(correct, samples, k)
    confidence = checked(level)
    values = 1.0 - missing(right, drawn, ks)
    means, count = values.mean(0), right.size
    if count == 1 and vary is not Vary.SAMPLES:
        return tuple(Estimate(float(mean), 0.0, 1.0, 1) for mean in means)
    deviations = resampled_deviations(right, drawn, ks, vary, np.random.default_rng(seed))
    lows, highs = np.quantile(deviations, (0.5 - confidence / 2, 0.5 + confidence / 2), axis=0)
    return tuple(
        Estimate(float(mean), float(max(0.0, mean + min(low, 0.0))), float(min(1.0, mean + max(high, 0.0))), count)
        for mean, low, high in zip(means, lows, highs, strict=True)
    )


def resampled_deviations(
    right: Counts, drawn: Counts, ks: Counts, vary: Vary, generator: np.random.Generator
) -> Values:
    """Computes the resampled mean pass@k minus its centre: resamples by ks."""
    count = right.size
    everyone = np.arange(count)
    values = 1.0 - missing(right, drawn, ks)
    plain = 1.0 - (1.0 - right / drawn)[:, None] ** ks
    centre = (values if vary is Vary.PROBLEMS else plain).mean(0)
    tables = {int(n): 1.0 - missing(np.arange(n + 1), np.full(n + 1, n), ks) for n in np.unique(drawn)}
    if vary is Vary.PROBLEMS:
        weights = generator.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        return np.asarray(weights @ values / count - centre)
    rows = np.empty((RESAMPLES, ks.size))
    for row in rows:
        chosen = everyone if vary is Vary.SAMPLES else generator.integers(count, size=count)
        again = generator.binomial(drawn[chosen], right[chosen] / drawn[chosen])
        sums = [tables[int(n)][again[drawn[chosen] == n]].sum(0) for n in tables]
        row[:] = np.sum(sums, 0) / count
    return np.asarray(rows - centre)


def missing(right: Counts, drawn: Counts, ks: Counts) -> Values:
    """Computes C(n - c, k) / C(n, k) as a running product over j < k: problems by ks."""
    steps = np.arange(int(ks.max()))
    left = np.maximum(drawn[:, None] - right[:, None] - steps, 0)
    factors = left / np.maximum(drawn[:, None] - steps, 1)
    return np.asarray(np.cumprod(factors, axis=1)[:, ks - 1])


# ---------------------------------------------------------------------------------------------------- votes
def majority_vote(answers: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Returns the most frequent answers in the order of their first appearance: one, or all that are tied.

    None is a sample without an answer and does not vote; without votes there is no winner.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    most = max(votes.values(), default=0)
    return tuple(answer for answer, count in votes.items() if count == most)


def majority_at_k(answers: Sequence[Hashable], truth: Hashable, k: int | None = None) -> float:
    """Computes the probability that the vote of k samples, drawn without replacement, is the truth; ties share the win.

    Exact: given that the truth has a votes among k, the other answers draw from what is left one after the other
    (hypergeometric) with at most a each, and e of them with exactly a leave it a share of 1 / (1 + e). Without k all
    samples vote. k = 1 is pass@1.
    """
    if not len(answers):
        raise AssayError("answers must hold at least one sample to vote, got none: leave the problem out")
    if truth is None:
        raise AssayError("truth must be an answer, got None: None stands for a sample without an answer")
    size = len(answers) if k is None else whole("k", k, least=1)[()]
    if size > len(answers):
        raise AssayError(f"k must be at most the {len(answers)} samples, got k={size}: draw more samples or lower k")
    votes = Counter(answer for answer in answers if answer is not None)
    right, others = votes.pop(truth, 0), list(votes.values())
    pools = (
        len(answers) - right - np.cumsum([0, *others])
    )  # what is left when the truth and the first others have drawn
    odds = [chances(count, int(pool) - count, int(size)) for count, pool in zip(others, pools, strict=False)]
    first = chances(right, len(answers) - right, int(size))[-1]
    silent, most = int(pools[-1]), min(right, int(size))
    return float(sum(first[mine] * share_won(mine, odds, silent, int(size) - mine) for mine in range(1, most + 1)))


def share_won(mine: int, odds: Sequence[Values], silent: int, draws: int) -> float:
    """Computes the expected share of the win with `mine` votes, if all other samples have `draws` between them.

    The state is a probability by draws left and answers tied so far; an answer with more votes ends it.
    """
    state = np.zeros((draws + 1, min(len(odds), draws // mine) + 2))
    state[draws, 0] = 1.0
    for chance in odds:
        after = np.zeros_like(state)
        for votes in range(min(chance.shape[1] - 1, mine, draws) + 1):
            part = chance[votes : draws + 1, votes, None] * state[votes:]
            after[: draws + 1 - votes] += np.roll(part, 1, axis=1) if votes == mine else part
        state = after
    shares = 1.0 / (1.0 + np.arange(state.shape[1]))
    return float((state[: silent + 1] @ shares).sum())


def chances(marked: int, plain: int, most: int) -> Values:
    """Computes hypergeometric probabilities of 0, 1, ... marked ones (columns) in 0..most draws (rows)."""
    draws, hits = np.arange(most + 1)[:, None], np.arange(min(marked, most) + 1)[None, :]
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, marked + plain + 1)))])

    def log_choose(n: int, k: NDArray[np.int64]) -> Values:
        inside = np.clip(k, 0, n)
        return np.where(inside == k, logs[n] - logs[inside] - logs[n - inside], -np.inf)

    total = log_choose(marked + plain, draws)
    ways = log_choose(marked, hits) + log_choose(plain, draws - hits)
    return np.asarray(np.exp(ways - np.where(np.isfinite(total), total, 0.0)))


# ---------------------------------------------------------------------------------------------------- two models
def coverage(first: ArrayLike, second: ArrayLike) -> Coverage:
    """Returns which problems each model solved at least once, from its counts of correct samples per problem.

    Assumes equal numbers of samples: the model that draws more covers more.
    """
    a, b = np.atleast_1d(whole("first", first, least=0)), np.atleast_1d(whole("second", second, least=0))
    same_problems(a, b)
    masks = ((a > 0) & (b > 0), (a > 0) & (b == 0), (a == 0) & (b > 0), (a == 0) & (b == 0))
    return Coverage(*(tuple(np.flatnonzero(mask).tolist()) for mask in masks))


def crossover(
    base: ArrayLike, trained: ArrayLike, samples: ArrayLike, *, level: float = 0.95, seed: int = 0
) -> Crossover:
    """Returns the smallest k from which the base's mean pass@k stays above the trained model's, up to the fewest
    samples.

    Counts of correct samples of the same problems in the same order. The interval holds the quantiles over resamples
    of the problems (both models together), never counting as infinitely late. Equal curves do not cross; a base that is
    ahead from the start gives 1.
    """
    confidence = checked(level)
    largest = int(whole("samples", samples, least=1).min())
    ks = np.arange(1, largest + 1)
    a, drawn, _ = checked_counts(base, samples, ks, name="base")
    b, _, _ = checked_counts(trained, samples, ks, name="trained")
    same_problems(a, b)
    ahead = missing(b, drawn, ks) - missing(a, drawn, ks)
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(a.size, np.full(a.size, 1 / a.size), size=RESAMPLES)
    late = np.sort([overtaken(row) for row in weights @ ahead / a.size])
    low, high = np.quantile(late, (0.5 - confidence / 2, 0.5 + confidence / 2), method="inverted_cdf")
    k = overtaken(ahead.mean(0))
    share = float(np.isfinite(late).mean())
    return Crossover(finite_or_none(k), finite_or_none(low), finite_or_none(high), share, largest)


def overtaken(ahead: Values) -> float:
    """Returns the first k after the last one without a lead (beyond rounding); infinity if the last k has no lead."""
    behind = np.flatnonzero(ahead <= 1e-12)
    after = int(behind[-1]) + 1 if behind.size else 0
    return math.inf if after == ahead.size else float(after + 1)


def finite_or_none(k: float) -> int | None:
    """Returns k as an integer, None for infinity."""
    return int(k) if math.isfinite(k) else None


# ---------------------------------------------------------------------------------------------------- input
def checked_counts(
    correct: ArrayLike, samples: ArrayLike, k: ArrayLike, *, name: str = "correct"
) -> tuple[Counts, Counts, Counts]:
    """Returns correct and drawn samples of each problem and the ks as vectors; refuses shapes that do not fit."""
    right = np.atleast_1d(whole(name, correct, least=0))
    drawn = whole("samples", samples, least=1)
    if right.ndim != 1 or not right.size:
        raise AssayError(f"{name} must be a count for each of one or more problems, got shape {right.shape}")
    if drawn.ndim > 1 or drawn.size not in (1, right.size):
        raise AssayError(f"samples must be one number or {right.size}, one for each problem, got shape {drawn.shape}")
    drawn = np.broadcast_to(drawn.ravel(), right.shape)
    ks = np.atleast_1d(whole("k", k, least=1))
    if ks.ndim != 1 or not ks.size:
        raise AssayError(f"k must be a number or a list of numbers, got shape {ks.shape}")
    if (right > drawn).any():
        place = int(np.flatnonzero(right > drawn)[0])
        raise AssayError(f"{name} must be at most samples, got {right[place]} of {drawn[place]} at problem {place}")
    if ks.max() > drawn.min():
        place = int(drawn.argmin())
        raise AssayError(
            f"k must be at most the samples of every problem, got k={ks.max()} with {drawn[place]} samples at problem "
            f"{place}: draw more samples or lower k"
        )
    return right, drawn, ks


def whole(name: str, values: ArrayLike, *, least: int) -> Counts:
    """Returns the values as integers of at least `least`; refuses other numbers and names their index."""
    try:
        given = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise AssayError(f"{name} must be whole numbers ({error})") from error
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(given) | (given != np.floor(given)) | (given < least) | (given >= 2**53)
    if bad.any():
        place = int(np.flatnonzero(bad.ravel())[0])
        value = given.ravel()[place]
        raise AssayError(
            f"{name} must be whole numbers of at least {least}, got {value} at place {place}: fix the count"
        )
    return given.astype(np.int64)


def same_problems(first: Counts, second: Counts) -> None:
    """Refuses two models with different numbers of problems."""
    if first.shape != second.shape:
        raise AssayError(f"both models need the same problems, got {first.shape[0]} and {second.shape[0]} counts")
