"""The declared range of own rewards: numbers inside of it are mapped to 0..1, others are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.core.errors import AssayError
from assay.core.record import InfraFault, Outcome, Score
from assay.core.score_range import UNIT, Range, declared_range, is_inside, refuse_outside, share_of_range, shown_row
from assay.core.slots import Task
from assay.runs.user_code.rewards import VERIFIER, OwnFunction, OwnRewards
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.scoring import Table


def declared_ranges(rewards: OwnRewards) -> dict[str, Range]:
    """Returns the attribute `range` of each function that has one."""
    functions = {name: one.function for name, one in rewards.components.items() if isinstance(one, OwnFunction)}
    found = {name: declared_range(function, name) for name, function in functions.items()}
    return {name: bounds for name, bounds in found.items() if bounds is not None}


@dataclass(frozen=True)
class Ranged:
    """Scores a completion by own rewards, mapped from their range to 0..1: score = (sum - low) / (high - low).

    The range is `whole`, or without it the sum of the components' own: `ranges` by name, 0..1 for the others, by their
    weights, over the components that apply to the row. So 1/2 is the middle of the range, above which an answer is
    right. OwnCodeError names the reward, the number and the row if it is outside. The logged components keep their
    numbers. Degenerate: where only components of weight 0 apply, the score is 0.
    """

    rewards: OwnRewards
    ranges: Mapping[str, Range]
    whole: Range | None = None

    @property
    def scores(self) -> Range:
        """The range of its scores, 0 to 1."""
        return UNIT

    def __call__(
        self, rows: Sequence[dict[str, Any]], verified: Callable[[], Sequence[Outcome]]
    ) -> tuple[Sequence[Outcome], Table]:
        """Returns the score of each row from 0 to 1, and the numbers of the components."""
        outcomes, table = self.rewards(rows, verified)
        mapped: list[Outcome] = []
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, InfraFault):
                mapped.append(outcome)
                continue
            numbers = {name: values[place] for name, values in table.items() if not math.isnan(values[place])}
            bounds = self.bounds(numbers, shown_row(place, rows[place]))
            mapped.append(Score(share_of_range(outcome.value, bounds)))
        return mapped, table

    def bounds(self, numbers: Mapping[str, float], row: str) -> Range:
        """Returns the range of the sum of these components; raises if one of them, or the sum, is outside."""
        weights = {name: self.rewards.weights[name] for name in numbers}
        if self.whole is not None:
            total = sum(weights[name] * number for name, number in numbers.items())
            if not is_inside(total, self.whole):
                raise refuse_outside(f"reward {' + '.join(numbers)}", total, row, self.whole)
            return self.whole
        own = {name: self.ranges.get(name, UNIT) for name, weight in weights.items() if weight}
        for name, bounds in own.items():
            if not is_inside(numbers[name], bounds):
                raise refuse_outside(f"reward {name}", numbers[name], row, bounds)
        ends = [sorted(weights[name] * one for one in bounds) for name, bounds in own.items()]
        return sum(low for low, _ in ends), sum(high for _, high in ends)


def with_range(task: Task, whole: Range | None) -> Task:
    """Returns a language task whose scores are mapped from their declared range to 0..1: `whole`, or what its reward
    functions declare. Without either the task is unchanged; with `whole` alone its verifier is what is mapped.
    """
    scorer = task.scorer if isinstance(task, PromptTask | DialogueTask) else None
    if whole is None and not isinstance(scorer, OwnRewards):
        return task
    if not isinstance(task, PromptTask | DialogueTask):
        raise AssayError(
            f"--reward-range is the range of rewards of completions; task '{task.name}' has none. Remove it."
        )
    rewards = scorer if isinstance(scorer, OwnRewards) else OwnRewards({}, {VERIFIER: 1.0})
    ranges = declared_ranges(rewards)
    if whole is None and not ranges:
        return task
    return replace(task, scorer=Ranged(rewards, ranges, whole))
