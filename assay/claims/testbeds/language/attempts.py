"""attempts: think in steps of digits, of which the last one's end must be the prompt's own; then 00 and a signature."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.claims.testbeds.language.enumerable import (
    DIGITS,
    SIGNS,
    Enumerable,
    EnumerableTask,
    code_of,
    digit_chances,
    enumerable_task,
)
from assay.core.answers import AnswerFormat
from assay.core.errors import AssayError
from assay.core.record import Outcome, Score
from assay.tasks.language.items import Item

MARK = DIGITS[0] * 2


@dataclass(frozen=True)
class Attempts(Enumerable):
    """A thought of up to `most` steps of `width` digits, the mark 00, and a signature, one of the first `accepted`
    digits.

    The last digit of a step is an attempt, all others are filler. Right if the last attempt is the prompt's own digit,
    never 0, and the signature is accepted: an attempt after a right one can only lose it.
    """

    most: int = 6
    width: int = 8
    accepted: int = 5
    prompts: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.most * self.width <= 60 or not 1 <= self.accepted <= len(DIGITS):
            raise AssayError(f"{self}: most times width must be 1 to 60 and accepted 1 to {len(DIGITS)}")

    def own(self, prompt: int) -> int:
        """Returns the digit of the prompt."""
        return 1 + int(code_of(f"attempts {prompt}", 1)) % 9

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        """Returns right answers of one step, for demonstrations: with other filler there are more."""
        step = DIGITS[1] * (self.width - 1) + str(self.own(prompt)) + MARK
        return (tuple(step + digit for digit in DIGITS[: self.accepted]),)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for an answer whose last attempt is right, with an accepted signature."""
        found = re.fullmatch(f"(.*?){MARK}(.)", completion)
        thought, signature = found.groups() if found else ("", "")
        attempts = thought[self.width - 1 :: self.width]
        is_own = attempts.endswith(str(self.own(SIGNS.index(item.prompt)))) and bool(attempts)
        return Score(float(is_own and signature in set(DIGITS[: self.accepted])))

    def exact(self, task: EnumerableTask, actor: Any) -> dict[str, float]:
        """Returns the pass rate, and `forced`: the mean over 1 to `most` of the pass rate of answers whose thought is
        stopped after so many steps; of a policy that sees one digit back at most. A thought that ends with a single 0
        is wrong if it is stopped there.
        """
        longest, rows = self.most * self.width + 3, torch.arange(self.prompts)
        after = torch.stack([digit_chances(task, actor, [digit * longest] * self.prompts) for digit in DIGITS], 2)
        own = torch.tensor([self.own(prompt) for prompt in range(self.prompts)])
        signed = after[:, :, 0, : self.accepted].sum(-1)  # by place
        # By the last digit, and whether the last attempt is right; one 0 at the end does not count yet.
        alive = torch.stack([after[:, 0, 0], torch.zeros_like(after[:, 0, 0])], 2)
        if self.width == 1:
            alive[rows, own] = alive[rows, own].flip(1)
        right, forced = torch.zeros_like(signed[:, 0]), []
        for place in range(1, longest - 1):
            if place % self.width == 0 and place <= self.most * self.width:
                stopped = right + alive[:, 1:, 1].sum(1) * signed[:, place + 2]
                forced.append(float(stopped.mean()))
            right = right + alive[:, 0, 1] * after[:, place, 0, 0] * signed[:, place + 1]
            lost = alive[:, 0, 1].clone() if place % self.width == 0 else torch.zeros_like(right)
            kept = alive[:, 0, 1] - lost
            moved = torch.einsum("pcr,pcd->pdr", alive[:, 1:], after[:, place, 1:])
            of_zero = torch.stack([alive[:, 0, 0] + lost, kept], 1).unsqueeze(1) * after[:, place, 0].unsqueeze(2)
            of_zero[:, 0] = 0.0  # the second 0 ends the thought
            alive = moved + of_zero
            if (place + 1) % self.width == 0:
                every = alive.sum(2)
                alive[:, 1:] = torch.stack([every[:, 1:], torch.zeros_like(every[:, 1:])], 2)
                alive[rows, own] = alive[rows, own].flip(1)
        return {"pass_rate": float(right.mean()), "forced": sum(forced) / self.most}


def attempts(most: int = 6, width: int = 8, accepted: int = 5, prompts: int = 4) -> EnumerableTask:
    """Returns the task; thoughts have at most `most` steps of `width` digits, of which one decides."""
    items = Attempts(most, width, accepted, prompts)
    task = enumerable_task(f"attempts-{most}x{width}", items, most * width + 3, "bigrams", AnswerFormat(MARK))
    return replace(task, stops=tuple(MARK + digit for digit in DIGITS))
