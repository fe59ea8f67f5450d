"""thinking: "cab=" is completed by "...;abc": any number of steps, a mark, then the sorted list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from assay.core.record import Outcome, PolicyFault
from assay.playing.text import CharacterTokenizer
from assay.tasks.language.arithmetic import exact_match
from assay.tasks.language.prompts import Item, PromptTask, generated_item
from assay.tasks.language.sorting import Sorting

STEP, MARK, SYMBOLS = ".", ";", "abcdefgh"


@dataclass(frozen=True)
class Thinking:
    """Lists of `level` letters whose sorted form is written after 0 to `most` steps and one mark.

    Steps help nothing, and a completion that is cut before its answer is wrong: what a policy gains or loses by length
    is known. Demonstrations have each number of steps equally often. A text without exactly one mark has no answer.
    """

    level: int = 3
    most: int = 6

    @property
    def num_words(self) -> int:
        """One for each letter, and one for the number of steps."""
        return self.level + 1

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """The list of these words, shown with as many steps as the last one says."""
        content, item = Sorting(self.level, SYMBOLS).propose(words[:-1])
        return content, replace(item, demonstration=STEP * (words[-1] % (self.most + 1)) + MARK + item.answer)

    def item(self, ordinal: int, split: int) -> Item:
        """Item `ordinal` of the split."""
        return generated_item(self, ordinal, split)

    def verify(self, item: Item, completion: str) -> Outcome:
        """1 for the sorted list after the only mark, 0 for all else."""
        before_and_after = completion.split(MARK)
        if len(before_and_after) != 2:
            return PolicyFault(f"{len(before_and_after) - 1} marks")
        return exact_match(item.answer, before_and_after[1])


def thinking(level: int = 3, most: int = 6) -> PromptTask:
    """The task; the limit is the longest demonstration."""
    items, name = Thinking(level, most), f"thinking-{most}" if level == 3 else f"thinking-{level}x{most}"
    return PromptTask(name, items, CharacterTokenizer(), max_prompt=level + 2, max_tokens=most + level + 2)


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "thinking": thinking,
    **{f"thinking-{most}": partial(thinking, 3, most) for most in (6, 12)},
}
