"""repeatable: write the digits of a code in order, each as often as one likes, then 0; a scorer of steps pays repeats.

The fact `steps` is what a scorer of steps knows: the digits of the code. It takes a digit that was said already for a
right step, so that repeating one pays at every place and adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from assay.claims.testbeds.language.enumerable import DIGITS, Enumerable, EnumerableTask, enumerable_task
from assay.core.errors import AssayError
from assay.rollouts import text
from assay.tasks.language.items import Item

STOP, VALUES = DIGITS[0], DIGITS[1:]


@dataclass(frozen=True)
class Repeatable(Enumerable):
    """A code of `digits` digits for each prompt, neighbours different; `room` more steps fit into an answer.

    Right are its digits in order, each at least once, and then 0.
    """

    digits: int = 2
    room: int = 4
    prompts: int = 4

    def __post_init__(self) -> None:
        if not 2 <= self.digits <= 4 or not 0 <= self.room <= 6:
            raise AssayError(f"{self}: digits must be 2 to 4 and room 0 to 6")

    def code(self, prompt: int) -> str:
        """Returns the digits of the prompt."""
        free, said = list(VALUES), ""
        for word in text.hashed_words(f"repeatable {prompt}", self.digits):
            said += free.pop(word % len(free))
        return said

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        """Returns the right answers in classes of equally many repeats, the shortest first."""
        code = self.code(prompt)

        def repeated(more: Sequence[int]) -> str:
            return "".join(digit * (1 + more.count(place)) for place, digit in enumerate(code)) + STOP

        places = range(self.digits)
        return tuple(
            tuple(repeated(more) for more in combinations_with_replacement(places, number))
            for number in range(self.room + 1)
        )

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number, in both splits."""
        found = super().item(ordinal, split)
        return replace(found, facts={**found.facts, "steps": [*self.code(ordinal % self.prompts), STOP]})


def repeatable(digits: int = 2, room: int = 4, prompts: int = 4) -> EnumerableTask:
    """Returns the task; `room` is how many useless steps an answer has room for."""
    items, longest = Repeatable(digits, room, prompts), digits + room + 1
    return replace(enumerable_task(f"repeatable-{digits}-{room}", items, longest, "bigrams"), stops=(STOP,))
