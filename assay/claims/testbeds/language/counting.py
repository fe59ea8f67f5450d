"""counting: say how far one has come, up to the number that the prompt asks for, in one of two ways that are right.

"12340" tells how far it is, so that its tail is enough to go on; "xxxx0" does not: whoever forgets its beginning cannot
stop in time. 0 ends an answer. Demonstrations are of both ways, in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.claims.testbeds.language.enumerable import DIGITS, Enumerable, EnumerableTask, enumerable_task
from assay.core.errors import AssayError
from assay.tasks.language.items import Item

TICK, STOP = "x", DIGITS[0]


@dataclass(frozen=True)
class Counting(Enumerable):
    """Prompt p asks for `shortest` + p, of at most nine. Right are the digits from 1 to it, and as many ticks."""

    prompts: int = 4
    shortest: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.shortest + self.prompts - 1 < len(DIGITS):
            raise AssayError(f"{self}: shortest + prompts must be 2 to {len(DIGITS)}, each at least 1")

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        num = self.shortest + prompt
        return ((DIGITS[1 : num + 1] + STOP,), (TICK * num + STOP,))

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number; the way of its demonstration changes after each round."""
        found = super().item(ordinal, split)
        shown = self.ways(ordinal % self.prompts)[ordinal // self.prompts % 2][0]
        return replace(found, demonstration=shown)


def counting(prompts: int = 4, shortest: int = 4) -> EnumerableTask:
    """Returns the task; answers have up to shortest + prompts tokens."""
    items, name = Counting(prompts, shortest), f"counting-{prompts}x{shortest}"
    return replace(enumerable_task(name, items, shortest + prompts, "classic"), stops=(STOP,))
