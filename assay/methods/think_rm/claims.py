"""The functions behind think-rm's claims: verdicts by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.slots import Scene
from assay.parts.rewards.judges import FunctionJudge
from assay.tasks.language.prompts import Item
from assay.tasks.testbeds.language.rivals import Rivals

ORDER = {"ab": 0.1, "ac": 7, "ad": 1, "bc": 2, "bd": 1, "cd": 1}
CYCLE = {"ab": 1, "bc": 1, "ca": 1}
SCORES = {"ab": 2, "ac": 3, "ad": 3, "bc": 1, "bd": 1}
TABLE: tuple[tuple[str, Mapping[str, float], bool, Sequence[float]], ...] = (
    ("abcd", ORDER, False, (1.0607, 0.3536, -0.3536, -1.0607)),
    ("dbca", ORDER, False, (-1.0607, 0.3536, -0.3536, 1.0607)),
    ("abcd", {pair: -margin for pair, margin in ORDER.items()}, False, (-1.0607, -0.3536, 0.3536, 1.0607)),
    ("abcd", dict.fromkeys(ORDER, 1 / 4000), True, (0.1846, 0.0615, -0.0615, -0.1846)),
    ("abcd", SCORES, False, (1.1619, 0.3873, -0.7746, -0.7746)),
    ("cabd", SCORES, True, (-0.7071, 1.4142, 0.0, -0.7071)),
    ("abc", CYCLE, False, (0.0, 0.0, 0.0)),
    ("abcd", CYCLE | {"ad": 1, "bd": 1, "cd": 1}, False, (0.3536, 0.3536, 0.3536, -1.0607)),
    ("abc", CYCLE | {"ba": 1, "cb": 1, "ac": 1}, True, (0.0, 0.0, 0.0)),
    ("ab", {}, False, (0.0, 0.0)),
    ("a", {}, False, (0.0,)),
)
"""Members, by how much the first of a pair is scored above the second, whether verdicts are graded, advantages: an
order, with members exchanged, with opposite verdicts; small ones; scores of 3, 1, 0, 0; a cycle, with a loser; a judge
that always says first; a tie; a group of one. Pairs that are not listed have the opposite of the exchanged pair, or 0.
"""
JUDGED = probes.listed(Item("p", "2", "1,2", {"responses": ("a", "b")}), Item("q", "1", "2,1"))
RULE = (
    ("2,7", 0, 1.0), ("7,7", 0, 0.0), ("7,6", 0, 0.0), ("no", 0, 0.0), ("5", 0, 0.0), ("so:1,2", 0, 1.0),
    ("7,2", 1, 1.0),
)  # fmt: skip
"""Completion, start, reward: the second response is best, then the first."""


def gap_to_table(recipe: Callable[..., Recipe]) -> float:
    """Returns the largest distance of the recipe's advantages from the table."""
    gaps = []
    for said, margin, graded, right in TABLE:

        def verdict(one: Mapping[str, Any], other: Mapping[str, Any], margin: Any = margin) -> tuple[float, float]:
            pair = one["completion"] + other["completion"]
            return margin.get(pair, -margin.get(pair[::-1], 0)), 0

        task, rows = probes.answered(list(said))
        credit = recipe(judge=FunctionJudge(verdict), graded=graded).credit[0]
        gaps.append(probes.distance(credit(rows, Scene(task)).column("advantage")[:, -1], right))
    return probes.worst(*gaps)


def loss_by_hand(seen: probes.Seen, graded: bool = False) -> Tensor:
    def standardised(reward: Tensor) -> Tensor:
        return (reward - reward.mean()) / (reward.var() + 1e-6).sqrt()

    def by_wins(reward: Tensor) -> Tensor:
        lead = [(one > reward).double().mean() - (one < reward).double().mean() for one in reward]
        return torch.stack(lead) / (0.5 + 1e-6) ** 0.5  # all rewards differ: every ordered pair adds 1

    data = seen.experience
    advantage = by_hand.in_groups(by_hand.outcome(data), data, standardised if graded else by_wins)
    return by_hand.grpo_loss(seen, advantage) + penalty_by_hand(seen)


def penalty_by_hand(seen: probes.Seen) -> Tensor:
    return 1e-4 * by_hand.mean_of_sequences(by_hand.k3(seen), seen.experience)


@dataclass(frozen=True)
class WinRate:
    """How often a policy wins by the verdicts of `judge`: against the uniform start, or its worst rival."""

    judge: Rivals
    worst: bool = False

    def of(self, policy: Any, task: Any) -> float:
        """Returns the win rate on the testbed `judge`."""
        return self.judge.win_rates(task, policy)[self.worst]
