"""A judge of pairs for the testbed `judge`, with a dial for what no score explains. Axes: A digits.

FunctionJudge(Rivals(lead=0.2))       the judge, for methods that learn from pairs
FromFunction(FittedFirst())           their rival: rewards by a score that was fitted to its verdicts on the start
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.claims.testbeds.language.enumerable import CHOICES, EnumerableTask, ExactItems, digit_chances
from assay.core.errors import AssayError
from assay.core.slots import Choice

FARTHEST = CHOICES // 2
"""The digit farthest from the code's, counted from it."""


@dataclass(frozen=True)
class Rivals(Choice):
    """Answers meet place by place: the digit nearer to the code's wins by the difference of their distances, but the
    farthest digit beats each of the others by `lead`.

        P(a beats b) = (1 + mean over places of the margin) / 2

    With a lead between 0 and 0.5 the code's digit wins most often against the uniform start and yet loses to the
    farthest one: no score explains both. Degenerate: with a negative lead the code's digit beats all others; answers
    without a place in common tie.
    """

    lead: float = 0.2

    def __post_init__(self) -> None:
        if not -1.0 <= self.lead <= 1.0:
            raise AssayError(f"{self}: lead must be -1 to 1")

    def margin(self, mine: int, theirs: int) -> float:
        """Returns by how much a digit beats another, both counted from the code's."""
        if FARTHEST in (mine, theirs):
            return self.lead * ((mine == FARTHEST) - (theirs == FARTHEST))
        return (min(theirs, CHOICES - theirs) - min(mine, CHOICES - mine)) / FARTHEST

    def margins(self) -> Tensor:
        """Returns the margins of all pairs of digits, [A, A]."""
        rows = [[self.margin(mine, theirs) for theirs in range(CHOICES)] for mine in range(CHOICES)]
        return torch.tensor(rows, dtype=torch.float64)

    def __call__(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float, float]:
        """Returns the mean margin of the first answer, and 0: a judge's function of two descriptions."""
        met = [self.margin(*digits) for digits in zip(digits_of(one), digits_of(other), strict=False)]
        return sum(met) / max(len(met), 1), 0.0

    def fitted(self) -> Tensor:
        """Returns the Bradley-Terry scores of the digits that best explain the verdicts on all pairs of them, [A]."""
        won, score = (1.0 + self.margins()) / 2, torch.zeros(CHOICES, dtype=torch.float64)
        for _ in range(200):
            score = score + 2.0 * (won - (score.unsqueeze(1) - score).sigmoid()).mean(1)
        return score

    def win_rates(self, task: EnumerableTask, policy: Any) -> tuple[float, float]:
        """Returns how often a policy wins against the uniform start, and against the digit that beats it most often,
        mean over prompts and places; exact for a policy whose digits do not depend on earlier ones.
        """
        items = task.items
        assert isinstance(items, ExactItems)
        codes = [items.item(prompt, 1).answer for prompt in range(items.prompts)]
        chance = digit_chances(task, policy, codes)
        code = torch.tensor([[int(digit) for digit in one] for one in codes]).unsqueeze(-1)
        won = (1.0 + chance.gather(-1, (code + torch.arange(CHOICES)) % CHOICES) @ self.margins()) / 2
        return float(won.mean()), float(won.amin(-1).mean())


@dataclass(frozen=True)
class FittedFirst(Choice):
    """The sum of the fitted scores of each answer's digits: a reward's function. Degenerate: equal answers have equal
    scores, whatever the policy has become.
    """

    judge: Rivals = Rivals()

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[float]:
        """Returns the scores."""
        score = self.judge.fitted()
        return [float(score[digits_of(row)].sum()) for row in rows]


def digits_of(row: Mapping[str, Any]) -> list[int]:
    """Returns the digits of an answer, counted from the code's; of other tasks, some number for each character."""
    pairs = zip(row.get("completion", ""), row.get("answer", ""), strict=False)
    return [(ord(said) - ord(right)) % CHOICES for said, right in pairs]
