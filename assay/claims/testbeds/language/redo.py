"""redo: running sums of digits, all checked, where 0 takes the last value back; some prompts begin with a wrong value.

A prompt is a letter, which stands for the digits, and the first running sum as it was written before, right or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product

from assay.claims.testbeds.language.enumerable import DIGITS, SIGNS, TOKENS, Enumerable, EnumerableTask, ways_of
from assay.core.answers import AnswerFormat
from assay.core.errors import AssayError
from assay.core.record import Outcome, Score
from assay.rollouts import text
from assay.tasks.language.items import Item, check_split

REDO, VALUES = DIGITS[0], DIGITS[1:]


@dataclass(frozen=True)
class Redo(Enumerable):
    """`steps` running sums modulo 9; a share `planted` of the prompts begins with a wrong first one.

    Right if the first `steps` values that remain, the given one included, are the running sums. There is room for one
    redo: after a wrong first value exactly one answer is right, 0 and all sums; the others may spend what is left.
    """

    steps: int = 2
    planted: float = 0.5
    prompts: int = 8

    def __post_init__(self) -> None:
        if not 2 <= self.steps <= 4 or not 0.0 <= self.planted <= 1.0:
            raise AssayError(f"{self}: steps must be 2 to 4 and planted 0 to 1")

    def sums(self, prompt: int) -> list[str]:
        """Returns the right values."""
        words = text.hashed_words(f"redo {prompt}", self.steps)
        return [VALUES[total % len(VALUES)] for total in accumulate(word % len(VALUES) for word in words)]

    def is_planted(self, prompt: int) -> bool:
        """Returns whether the prompt begins with a wrong value; spread evenly over the prompts."""
        return int((prompt + 1) * self.planted) > int(prompt * self.planted)

    def given(self, prompt: int) -> str:
        """Returns the first value as it was written before."""
        first = VALUES.index(self.sums(prompt)[0])
        return VALUES[(first + 4) % len(VALUES)] if self.is_planted(prompt) else VALUES[first]

    def bucket(self, prompt: int) -> str:
        """Returns `planted` or `clean`."""
        return "planted" if self.is_planted(prompt) else "clean"

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        """Returns the right answers: one class, since they say the same."""
        every = map("".join, product(DIGITS, repeat=self.steps + 1))
        sums, given = self.sums(prompt), self.given(prompt)
        return (tuple(one for one in every if remaining([given, *one], self.steps) == sums),)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number, in both splits."""
        check_split(split)
        prompt = ordinal % self.prompts
        shown = ways_of(self, prompt)[0][0]
        return Item(SIGNS[prompt] + self.given(prompt), shown, shown, {"label": self.bucket(prompt)})

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 if all checked values are right, else 0."""
        sums = self.sums(SIGNS.index(item.prompt[0]))
        return Score(float(remaining([item.prompt[1], *completion], self.steps) == sums))


    def first_error(self, item: Item, completion: str) -> int | None:
        """Returns the place of the first value that is not the running sum of its place, before or after a redo."""
        sums, values = self.sums(SIGNS.index(item.prompt[0])), [item.prompt[1]]
        for place, one in enumerate(completion):
            if one == REDO:
                values = values[:-1]
            elif len(values) < self.steps and one != sums[len(values)]:
                return place
            else:
                values.append(one)
        return None


    def finish(self, item: Item, begun: str) -> str | None:
        """Returns the missing running sums, and the last of them again up to the limit; None after a wrong value, or
        without room.
        """
        sums, values = self.sums(SIGNS.index(item.prompt[0])), remaining([item.prompt[1], *begun], 2 * self.steps)
        missing, room = "".join(sums[len(values) :]), self.steps + 1 - len(begun)
        if values[: self.steps] != sums[: len(values)] or len(missing) > room:
            return None
        return missing + sums[-1] * (room - len(missing))


def remaining(written: Sequence[str], steps: int) -> list[str]:
    """Returns the first `steps` of the values that remain when each 0 has taken back the value before it."""
    values: list[str] = []
    for one in written:
        if one != REDO:
            values.append(one)
        elif values:
            values.pop()
    return values[:steps]


def redo(steps: int = 2, planted: float = 0.5, prompts: int = 8) -> EnumerableTask:
    """Returns the task; `planted` is the share of prompts that begin with an error."""
    items = Redo(steps, planted, prompts)
    if not 1 <= prompts <= len(SIGNS):
        raise AssayError(f"{items}: prompts must be 1 to {len(SIGNS)}")
    name, written = f"redo-{steps}-{planted:g}", AnswerFormat(step=REDO)
    return EnumerableTask(name, items, TOKENS, 3, steps + 1, answer_format=written, preset="bigrams")
