"""thinking: "cab=" is completed by "...;abc": any number of steps, a mark, then the sorted list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from assay.core.answers import AnswerFormat
from assay.core.errors import AssayError
from assay.core.record import Outcome
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.arithmetic import match_after
from assay.tasks.language.items import Generator, Item
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.sorting import Sorting

STEP, MARK, SYMBOLS = ".", ";", "abcdefgh"


@dataclass(frozen=True)
class Thinking(Generator):
    """Lists of `level` letters whose sorted form is written after `least` to `most` steps and one mark.

    Steps help nothing, and a completion that is cut before its answer is wrong: what a policy gains or loses by length
    is known. Demonstrations have each number of steps equally often. A text without exactly one mark has no answer.
    """

    level: int = 3
    most: int = 6
    least: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise AssayError(f"{self}: least (steps) must be 0 to most ({self.most})")

    @property
    def num_words(self) -> int:
        return self.level + 1

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns the list of these words, shown with as many steps as the last one says."""
        content, item = Sorting(self.level, SYMBOLS).propose(words[:-1])
        num_steps = self.least + words[-1] % (self.most - self.least + 1)
        return content, replace(item, demonstration=STEP * num_steps + MARK + item.answer)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the sorted list after the only mark, 0 for all else."""
        return match_after(MARK, item.answer, completion)


def thinking(most: int = 6, least: int = 0, level: int = 3) -> PromptTask:
    """Returns the task; the limit is the longest demonstration, so that with a high `least` few tokens are left to
    spare.
    """
    name = f"thinking-{most}" if not least else f"thinking-{least}-to-{most}"
    items = Thinking(level, most, least)
    return PromptTask(name, items, CharacterTokenizer(), level + 2, most + level + 2, answer_format=AnswerFormat(MARK))


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "thinking": thinking,
    "thinking-12": partial(thinking, 12),
    "thinking-4-to-6": partial(thinking, 6, 4),
}
