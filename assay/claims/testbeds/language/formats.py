"""formats: the first digit of an answer is its format, the second its content, right more often in some formats.

The uniform start uses each format as often, and is right in it as often, as two dials say. Two more make modes of them:
`hard` prompts have no right answer in the first format, and a right answer loses `cost` for each format before its own.
With a `mixture`, demonstrations are traces to pre-train on: formats at these shares, right as often as the start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from assay.claims.testbeds.language.enumerable import (
    CHOICES,
    DIGITS,
    SIGNS,
    Enumerable,
    EnumerableTask,
    digit_chances,
    draw_keys,
    enumerable_task,
    right_answers,
)
from assay.core.answers import AnswerFormat
from assay.core.errors import AssayError
from assay.core.record import Outcome, Score
from assay.rollouts import text
from assay.tasks.language.items import Item


@dataclass(frozen=True)
class Formats(Enumerable):
    """Format m has `shares[m]` of the ten first digits, in order, and `right[m]` right second digits, others for every
    prompt. First digits of no format are never right. Start: share s_m / 10, accuracy a_m / 10. In the first `hard`
    prompts format 0 is never right. A right answer in format m scores 1 - m `cost`. With a `mixture` every ordinal has
    a demonstration of its own, of format m in mixture[m] of all, with any digit as its content.
    """

    shares: tuple[int, ...] = (5, 3, 2)
    right: tuple[int, ...] = (2, 6, 5)
    prompts: int = 8
    hard: int = 0
    cost: float = 0.0
    mixture: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.right) or sum(self.shares) > CHOICES or 0 in (*self.shares, *self.right):
            raise AssayError(f"{self}: give as many shares as right, each 1 to 9, shares with a sum of 10 at most")
        if not 0 <= self.hard <= self.prompts * (len(self.shares) > 1) or not 0 <= self.cost * len(self.shares) <= 1:
            raise AssayError(f"{self}: hard is a number of prompts, cost at most 1 / formats; hard needs two formats")
        if self.mixture and (len(self.mixture) != len(self.shares) or not sum(self.mixture)):
            raise AssayError(f"{self}: give the mixture one number for each format, not all 0")

    @property
    def digits(self) -> list[str]:
        """Returns the first digits of each format."""
        return [DIGITS[first:end] for first, end in pairwise((0, *accumulate(self.shares)))]

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        contents = [draw_keys(f"formats {prompt} {place}", num, 1) for place, num in enumerate(self.right)]
        return tuple(
            tuple(first + content for first in digits for content in own)
            for digits, own in list(zip(self.digits, contents, strict=True))[prompt < self.hard :]
        )

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number, with a trace of the mixture if there is one."""
        found = super().item(ordinal, split)
        if not self.mixture:
            return found
        which, first, content = text.hashed_words(f"trace {ordinal}", 3)
        digits = [digits for digits, num in zip(self.digits, self.mixture, strict=True) for _ in range(num)]
        own = digits[which % len(digits)]
        return replace(found, demonstration=own[first % len(own)] + DIGITS[content % CHOICES])

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 less the cost of its format for a right answer, 0 for all else."""
        if completion not in right_answers(self, SIGNS.index(item.prompt)):
            return Score(0.0)
        return Score(1.0 - self.cost * [completion[0] in digits for digits in self.digits].index(True))

    def exact(self, task: EnumerableTask, actor: Any) -> dict[str, float]:
        """Returns what right answers give; also `share/M`, the probability of each format, `largest_share`,
        `own_share`, the mean over prompts of each one's largest share, and `cheapest_share`, that of the first format
        in which the prompt has a right answer.
        """
        first_PA = digit_chances(task, actor, [DIGITS[:2]] * self.prompts)[:, 0]
        bounds = pairwise((0, *accumulate(self.shares)))
        of_format = [first_PA[:, first:end].sum(1) for first, end in bounds]
        means = {f"share/{place}": float(own.mean()) for place, own in enumerate(of_format)}
        own = sum(max(float(share[prompt]) for share in of_format) for prompt in range(self.prompts)) / self.prompts
        cheapest = sum(float(of_format[prompt < self.hard][prompt]) for prompt in range(self.prompts)) / self.prompts
        more = {"largest_share": max(means.values()), "own_share": own, "cheapest_share": cheapest}
        return super().exact(task, actor) | means | more


def formats(
    shares: int = 532, right: int = 265, prompts: int = 8, hard: int = 0, cost: float = 0.0, mixture: int = 0
) -> EnumerableTask:
    """Returns the task; each digit of `shares` and `right` is the number of one format, in tenths at the start, and
    each digit of `mixture` that format's share of the demonstrations. The last format is its box.
    """
    traces = tuple(map(int, str(mixture))) if mixture else ()
    items = Formats(tuple(map(int, str(shares))), tuple(map(int, str(right))), prompts, hard, cost, traces)
    name = f"formats-{shares}-{right}" + (f"-hard-{hard}-cost-{cost:g}" if hard or cost else "")
    name += f"-mixture-{mixture}" if mixture else ""
    modes = tuple((f"format-{place}", f"[{digits}].*") for place, digits in enumerate(items.digits))
    openings = tuple(digits[len(digits) // 2] for digits in items.digits)
    written = AnswerFormat(box=f"^[{items.digits[-1]}]", modes=modes, openings=openings)
    return enumerable_task(name, items, 2, "bigrams", written)
