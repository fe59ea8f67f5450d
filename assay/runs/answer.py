"""The answer of a comparison in one line: which arm is clearly above which, on which task, or that none is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from assay.runs.ranges import Range
from assay.statistics.intervals import Estimate, difference_interval, formatted, inside, widths

Scores: TypeAlias = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Task -> arm -> seed -> score."""


FEWEST = 3
"""Seeds from which a difference may be called clear."""


@dataclass(frozen=True)
class Pair:
    """Two arms on a task: the mean difference of the higher one over the lower, by seed, with an interval that holds
    for all pairs and tasks of the comparison at once (95 %, Bonferroni).
    """

    task: str
    above: str
    below: str
    difference: Estimate

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0. Two seeds are too few: equal differences would have no width."""
        return self.difference.count >= FEWEST and self.difference.low > 0

    @property
    def strength(self) -> float:
        """The difference in units of half its interval: 0 for equal scores, infinite where it has no width."""
        one = self.difference
        half = (one.high - one.low) / 2
        return one.value / half if half > 0 else math.inf if one.value > 0 else 0.0


def pairs_of(scores: Scores, ranges: Mapping[str, Range]) -> list[Pair]:
    """Returns every pair of arms with scores on a common task, the clearest first. Scores are paired by seed where both
    arms have seeds in common, as in tables.
    """
    both = [
        (task, one, other)
        for task, arms in scores.items()
        for one, other in combinations([arm for arm in arms if arms[arm]], 2)
    ]
    level = 1.0 - 0.05 / max(1, len(both))
    found = []
    for task, one, other in both:
        mine, theirs = scores[task][one], scores[task][other]
        seeds = [seed for seed in mine if seed in theirs]
        a = [mine[seed] for seed in seeds] or list(mine.values())
        b = [theirs[seed] for seed in seeds] or list(theirs.values())
        minus = difference_interval(a, b, paired=bool(seeds), level=level, binary=False)
        if minus.value < 0:
            one, other = other, one
            minus = Estimate(-minus.value, -minus.high, -minus.low, minus.count)
        found.append(Pair(task, one, other, inside(minus, widths(ranges.get(task)) if minus.count > 1 else None)))
    return sorted(found, key=lambda pair: -pair.strength)


def answer(pairs: Sequence[Pair]) -> str:
    """Returns one sentence on what a comparison shows; "" if it compares nothing."""
    if not pairs:
        return ""
    if all(pair.difference.count < FEWEST for pair in pairs):
        return f"Whether arms differ cannot be said with fewer than {FEWEST} seeds."
    clear = [pair for pair in pairs if pair.is_clear]
    several = f" (95 % for all {len(pairs)} comparisons together)" if len(pairs) > 1 else ""
    if not clear:
        return f"No arm differs clearly{several}."
    first = clear[0]
    more = len(clear) - 1
    rest = f"; {more} more {'pair differs' if more == 1 else 'pairs differ'} clearly" if more else ""
    return f"{first.above} is above {first.below} on {first.task} by {formatted(first.difference)}{several}{rest}."


def clearest_task(pairs: Sequence[Pair]) -> str | None:
    """Returns the task on which arms are told apart best; None without a pair."""
    return pairs[0].task if pairs else None
