"""The functions behind think-rm's claims: verdicts by hand. Axes: B sequences, T decisions, G answers of a group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Expect, Final, Item, Measured, by_hand, probes, same_gradient
from assay.claims.testbeds.language.rivals import FittedFirst, Rivals
from assay.method import PLACES, Recipe, Scene, recipes, with_regularizers
from assay.methods.think_rm import KL, PairwiseCredit, Refitted, of_judge, recipe
from assay.parts import FromFunction, FunctionJudge, OutcomeJudge, margins

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


JUDGED_TASK = probes.listed(Item("p", "2", "1,2", {"responses": ("a", "b")}), Item("q", "1", "2,1", {"responses": 2}))


RULE = (
    ("2,7", 0, 1.0), ("7,7", 0, 0.0), ("7,6", 0, 0.0), ("no", 0, 0.0), ("5", 0, 0.0), ("so:1,2", 0, 1.0),
    ("7,2", 1, 1.0),
)
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
        untied = sum((one != reward).double().sum() for one in reward)  # each such ordered pair adds 1
        return torch.stack(lead) / (untied / (2 * len(reward) * (len(reward) - 1)) + 1e-6) ** 0.5

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


RIVALS = Rivals(lead=0.2)


JUDGED = recipe(PLACES, FunctionJudge(RIVALS))


SCORED = with_regularizers(replace(recipes.grpo(PLACES), rewards=(FromFunction(FittedFirst(RIVALS)),)), KL)


REFITTED = replace(SCORED, rewards=(Refitted(FunctionJudge(RIVALS)),))


CLAIMS = Claims(
    mutants=(
        Edit("one order of a pair", FunctionJudge.scores, "two_numbers(self.function(b, a))", "forth[::-1]"),
        Edit("a match counts for one side", margins, "above - above.T", "above"),
        Edit("the mean of the others", PairwiseCredit.apply, "verdict.mean(1)", "verdict.sum(1) / (len(rows_G) - 1)"),
        Edit("-1 for a wrong judgement", of_judge, "wrong=0.0", "wrong=-1.0"),
    ),
    claims=(
        same_gradient("its gradient is grpo's with signs of all matches, and 1e-4 k3", recipe, loss_by_hand),
        same_gradient("with graded verdicts its gradient is grpo's with rewards standardised in the group",
                      partial(recipe, graded=True), partial(loss_by_hand, graded=True)),
        Exact("advantages are those by hand: orders, members exchanged, opposite verdicts, ties, cycles, a group of "
              "one; a judge that always says first gives 0", lambda: gap_to_table(recipe), at_most=1e-4),
        Exact("a judge earns 1 if the best response is strictly first, else 0",
              lambda: probes.table_gap(of_judge(), JUDGED_TASK, RULE), equals=0.0),
        same_gradient("the judge's gradient is grpo's with 1e-4 k3", lambda: replace(of_judge(), rewards=()),
                      lambda seen: by_hand.grpo_loss(seen) + penalty_by_hand(seen)),
        Measured("where no score explains the judge, its win rate against the answer that beats it most often is 0.02 "
                 "above that of grpo on a Bradley-Terry score fitted first", "judge", JUDGED, SCORED,
                 WinRate(RIVALS, worst=True), margin=0.02, seeds=6, minutes=4.0, steps=100, about=About.HEADLINE),
        Measured("its win rate against the start, to which the score was fitted, is below that of grpo on the score",
                 "judge", JUDGED, SCORED, WinRate(RIVALS), expect=Expect.BELOW, seeds=6, minutes=4.0, steps=100,
                 about=About.COMPONENT),
        Measured("a Bradley-Terry score refitted to every group does as well against the worst rival, within 0.02",
                 "judge", JUDGED, REFITTED, WinRate(RIVALS, worst=True), expect=Expect.WITHIN, margin=0.02,
                 seeds=6, minutes=5.0, steps=100, about=About.COMPONENT),
        Measured("with a judge of noise 0.5 its true score with graded verdicts is above that with signs",
                 "judge:noise=0", recipe(PLACES, OutcomeJudge(0.5), True), recipe(PLACES, OutcomeJudge(0.5)),
                 Final("true_score"), seeds=8, minutes=2.0, steps=60, about=About.COMPONENT),
    ),
)
