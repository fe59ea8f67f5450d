"""lookup: "ab47,cd12,ef90?cd=" is completed by "12": finds one value in a text of any length."""

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

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Lookup(Generator):
    """`level` entries, each a key of two letters, all different, and a value of two digits; the question is one key.

    Exact match; whitespace around the answer is ignored. The same entries with the same question are in the same split,
    whatever their order.
    """

    level: int = 16

    def __post_init__(self) -> None:
        if not 2 <= self.level <= len(LETTERS) ** 2:
            raise AssayError(f"{self}: level (entries) must be 2 to {len(LETTERS) ** 2}")

    @property
    def num_words(self) -> int:
        return 2 * self.level + 1

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns the entries of these words; the question is any of them."""
        free = list(range(len(LETTERS) ** 2))
        keys = [free.pop(word % len(free)) for word in words[: self.level]]
        entries = [
            LETTERS[key // len(LETTERS)] + LETTERS[key % len(LETTERS)] + f"{word % 100:02d}"
            for key, word in zip(keys, words[self.level :], strict=False)
        ]
        asked = entries[words[-1] % self.level]
        content = ",".join(sorted(entries)) + asked[:2]
        return content, Item(f"{','.join(entries)}?{asked[:2]}=", asked[2:], asked[2:])

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the value, 0 for all else."""
        return exact_match(item.answer, completion)


def lookup(level: int = 16) -> PromptTask:
    """Returns the task; `level` is the number of entries, five tokens each."""
    return PromptTask(f"lookup-{level}", Lookup(level), CharacterTokenizer(), max_prompt=5 * level + 4, max_tokens=3)


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "lookup": lookup,
    **{f"lookup-{level}": partial(lookup, level) for level in (2, 4, 8, 16, 32, 64, 128, 256)},
}
