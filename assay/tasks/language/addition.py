"""addition: "12+345=" is completed by "357"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from assay.core.errors import AssayError
from assay.core.record import Outcome
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.arithmetic import exact_match
from assay.tasks.language.items import Generator, Item
from assay.tasks.language.prompts import PromptTask


@dataclass(frozen=True)
class Addition(Generator):
    """Sums of `terms` numbers, each uniform in 0 .. 10^level - 1, written without padding.

    Exact match: "0357", "357+0" and "357 or 358" are wrong; whitespace around the answer is ignored. Sums that differ
    only in the order of their terms are in the same split.
    """

    level: int = 2
    terms: int = 2

    def __post_init__(self) -> None:
        if not (1 <= self.level <= 15 and 2 <= self.terms <= 20):
            raise AssayError(f"{self}: level (digits) or terms is out of range. Use level 1 to 15 and terms 2 to 20")

    @property
    def num_words(self) -> int:
        return self.terms

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns the sum whose terms are these words modulo 10^level."""
        terms = [word % 10**self.level for word in words]
        answer = str(sum(terms))
        item = Item("+".join(map(str, terms)) + "=", answer, answer, {"terms": tuple(terms)})
        return "+".join(map(str, sorted(terms))), item

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the sum, 0 for all else."""
        return exact_match(item.answer, completion)


def addition(level: int = 2, terms: int = 2) -> PromptTask:
    """Returns the task; `level` is the number of digits."""
    items = Addition(level, terms)
    name = f"addition-{level}" if terms == 2 else f"addition-{level}x{terms}"
    longest = len(str(terms * (10**level - 1)))
    return PromptTask(name, items, CharacterTokenizer(), max_prompt=terms * (level + 1) + 1, max_tokens=longest + 1)


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "addition": addition,
    **{f"addition-{level}": partial(addition, level) for level in range(1, 6)},
}
