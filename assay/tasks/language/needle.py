"""needle: "a4c1f9?c=" is completed by "1", "a4c1f9?b=" by "!": a value out of the text, or that it is not there."""

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

KEYS = "abcdefgh"
ABSTAIN = "!"
ANSWERABLE, UNANSWERABLE = "answerable", "unanswerable"


@dataclass(frozen=True)
class Needle(Generator):
    """`level` entries, each a letter and a digit, letters all different; one letter is asked for.

    In a share `missing` of all items the letter is not among the entries, and ABSTAIN is the right answer. The fact
    `label` is `answerable` or `unanswerable`. Exact match; whitespace around the answer is ignored.
    """

    level: int = 3
    missing: float = 0.4

    def __post_init__(self) -> None:
        if not 1 <= self.level < len(KEYS) or not 0.0 <= self.missing <= 1.0:
            raise AssayError(f"{self}: level (entries) must be 1 to {len(KEYS) - 1} and missing 0 to 1")

    @property
    def num_words(self) -> int:
        """Returns a key and a value for each entry, whether the question can be answered, and which."""
        return 2 * self.level + 2

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns the entries of these words, and a question."""
        free = list(KEYS)
        keys = [free.pop(word % len(free)) for word in words[: self.level]]
        values = [str(word % 10) for word in words[self.level : 2 * self.level]]
        entries = [key + value for key, value in zip(keys, values, strict=True)]
        is_missing = words[-2] < self.missing * 2.0**64
        asked = free[words[-1] % len(free)] if is_missing else keys[words[-1] % self.level]
        answer = ABSTAIN if is_missing else values[keys.index(asked)]
        label = UNANSWERABLE if is_missing else ANSWERABLE
        prompt = "".join(entries) + f"?{asked}="
        return "".join(sorted(entries)) + asked, Item(prompt, answer, answer, {"label": label})

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the value, or for ABSTAIN where it is missing; 0 for all else."""
        return exact_match(item.answer, completion)


def needle(level: int = 3, missing: float = 0.4) -> PromptTask:
    """Returns the task; `level` is the number of entries."""
    return PromptTask(
        f"needle-{level}", Needle(level, missing), CharacterTokenizer(), max_prompt=2 * level + 4, max_tokens=2
    )


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "needle": needle,
    **{f"needle-{level}": partial(needle, level) for level in (1, 2, 3, 5)},
}
