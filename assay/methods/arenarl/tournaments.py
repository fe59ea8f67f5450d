"""Tournaments: who meets whom in a group, and the ranks that follow. The judge is a function of pairs of members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.core.slots import Choice

Pairs = Sequence[tuple[int, int]]
Match = Callable[[Pairs], list[tuple[float, float]]]
"""Members in, the judge's score of each side out."""


class Topology(Choice, Protocol):
    """Who meets whom, and what follows from it."""

    def __call__(self, num_members: int, match: Match) -> list[float]:
        """Ranks from 0, the best; members that are equal share their mean rank."""


@dataclass(frozen=True)
class SeededElimination(Topology):
    """All meet member 0, the anchor; that seeds a bracket in which strong meets weak and the loser is out: 2 (n - 1)
    matches (ArenaRL, arXiv:2601.06487). Ranked by rounds won, then by the mean score of all matches.

    A tie counts half a round for both, and the better seed goes on. Members without an opponent go on too.
    """

    def __call__(self, num_members: int, match: Match) -> list[float]:
        """Ranks."""
        points = seeding(num_members, match)
        seeds = sorted(range(num_members), key=lambda member: -mean(points[member]))
        left = [seeds[place] for place in bracket(num_members)]
        rounds = [0.0] * num_members
        while len(left) > 1:
            pairs = list(zip(left[::2], left[1::2], strict=False))
            on = []
            for (one, other), (mine, theirs) in zip(pairs, match(pairs), strict=True):
                points[one].append(mine)
                points[other].append(theirs)
                won = 0.5 if mine == theirs else float(mine > theirs)
                rounds[one] += won
                rounds[other] += 1.0 - won
                better = one if seeds.index(one) < seeds.index(other) else other
                on.append(better if mine == theirs else one if mine > theirs else other)
            without = left[len(pairs) * 2 :]
            for member in without:
                rounds[member] += 1.0
            left = on + without
        return ranks([(rounds[member], mean(points[member])) for member in range(num_members)])


@dataclass(frozen=True)
class RoundRobin(Topology):
    """All meet all: n (n - 1) / 2 matches; ranked by wins, a tie is half a win."""

    def __call__(self, num_members: int, match: Match) -> list[float]:
        """Ranks."""
        pairs = [(one, other) for one in range(num_members) for other in range(one + 1, num_members)]
        wins = [0.0] * num_members
        for (one, other), (mine, theirs) in zip(pairs, match(pairs), strict=True):
            won = 0.5 if mine == theirs else float(mine > theirs)
            wins[one] += won
            wins[other] += 1.0 - won
        return ranks([(won, 0.0) for won in wins])


@dataclass(frozen=True)
class AnchorOnly(Topology):
    """All meet member 0: n - 1 matches; ranked by the score there, the anchor by its mean score."""

    def __call__(self, num_members: int, match: Match) -> list[float]:
        """Ranks."""
        return ranks([(mean(scores), 0.0) for scores in seeding(num_members, match)])


def seeding(num_members: int, match: Match) -> list[list[float]]:
    """Scores of each member against member 0; the anchor's own is its mean over them."""
    results = match([(member, 0) for member in range(1, num_members)])
    return [[mean([anchor for _, anchor in results])], *([mine] for mine, _ in results)]


def bracket(num_members: int) -> list[int]:
    """Seeds in the order of the bracket: the best meets the worst, and the two best can meet in the final only."""
    order = [0]
    while len(order) < num_members:
        order = [seed for one in order for seed in (one, 2 * len(order) - 1 - one)]
    return [seed for seed in order if seed < num_members]


def mean(values: Sequence[float]) -> float:
    """0 where there are none."""
    return sum(values) / max(1, len(values))


def ranks(standing: Sequence[tuple[float, float]]) -> list[float]:
    """Places from 0, larger standings first; equal ones share the mean of their places."""
    return [sum(o > own for o in standing) + (sum(o == own for o in standing) - 1) / 2 for own in standing]
