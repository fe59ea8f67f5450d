"""Tournaments: pairings within a group, and the resulting ranks. The judge is a function of pairs of members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.core.slots import Choice

Pairs = Sequence[tuple[int, int]]
Match = Callable[[Pairs], list[tuple[float, float]]]
"""A function from two members to the judge's score of each."""


class Topology(Choice, Protocol):
    """Pairs the members of a group and ranks them."""

    def __call__(self, num_members: int, match: Match) -> list[float]:
        """Returns ranks from 0, the best; equal members share their mean rank."""


@dataclass(frozen=True)
class SeededElimination(Topology):
    """Seeds a knock-out by a match of every member with member 0, the anchor: 2 (n - 1) matches (ArenaRL,
    arXiv:2601.06487). Ranked by rounds survived, then by the mean score of all matches; members with equal means
    share their mean rank.

    In the bracket strong meets weak and the loser is out; after a tie the better seed advances, as does a member
    without an opponent, which stands first in the next round. Without the sharing, equal members would be ranked by
    their numbers: a group without any difference would get a step of full size.
    """

    def __call__(self, num_members: int, match: Match) -> list[float]:
        """Returns the ranks."""
        points = seeding(num_members, match)
        seeds = sorted(range(num_members), key=lambda member: -mean(points[member]))
        left = [seeds[place] for place in bracket(num_members)]
        rounds = [0] * num_members
        while len(left) > 1:
            pairs, on = list(zip(left[::2], left[1::2], strict=False)), left[len(left) // 2 * 2 :]
            for (one, other), (mine, theirs) in zip(pairs, match(pairs), strict=True):
                points[one].append(mine)
                points[other].append(theirs)
                better = one if seeds.index(one) < seeds.index(other) else other
                on.append(better if mine == theirs else one if mine > theirs else other)
            for member in on:
                rounds[member] += 1
            left = on
        score = [mean(own) for own in points]
        place = ranks([(rounds[member], score[member]) for member in range(num_members)])
        return [mean([place[m] for m in range(num_members) if score[m] == own]) for own in score]


@dataclass(frozen=True)
class RoundRobin(Topology):
    """Every member meets every other: n (n - 1) / 2 matches; ranked by wins, a tie is half a win."""

    def __call__(self, num_members: int, match: Match) -> list[float]:
        """Returns the ranks."""
        pairs = [(one, other) for one in range(num_members) for other in range(one + 1, num_members)]
        wins = [0.0] * num_members
        for (one, other), (mine, theirs) in zip(pairs, match(pairs), strict=True):
            won = 0.5 if mine == theirs else float(mine > theirs)
            wins[one] += won
            wins[other] += 1.0 - won
        return ranks([(won, 0.0) for won in wins])


@dataclass(frozen=True)
class AnchorOnly(Topology):
    """Every member meets member 0: n - 1 matches; ranked by the score there, the anchor by its mean score."""

    def __call__(self, num_members: int, match: Match) -> list[float]:
        """Returns the ranks."""
        return ranks([(mean(scores), 0.0) for scores in seeding(num_members, match)])


def seeding(num_members: int, match: Match) -> list[list[float]]:
    """Returns the scores of each member against member 0; the anchor's own is its mean over them."""
    results = match([(member, 0) for member in range(1, num_members)])
    return [[mean([anchor for _, anchor in results])], *([mine] for mine, _ in results)]


def bracket(num_members: int) -> list[int]:
    """Returns the seeds in bracket order: the best meets the worst, and the two best can meet in the final only."""
    order = [0]
    while len(order) < num_members:
        order = [seed for one in order for seed in (one, 2 * len(order) - 1 - one)]
    return [seed for seed in order if seed < num_members]


def mean(values: Sequence[float]) -> float:
    """Returns the mean, 0 for no values; exactly the value if all are equal, whatever their number."""
    return values[0] + sum(value - values[0] for value in values) / len(values) if values else 0.0


def ranks(standing: Sequence[tuple[float, float]]) -> list[float]:
    """Returns places from 0, larger standings first; equal ones share the mean of their places."""
    return [sum(o > own for o in standing) + (sum(o == own for o in standing) - 1) / 2 for own in standing]
