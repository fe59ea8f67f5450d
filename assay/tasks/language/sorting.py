"""sorting: "qwerty=" is completed by "eqrtwy"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from assay.core.errors import AssayError
from assay.core.record import Outcome
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.arithmetic import exact_match
from assay.tasks.language.items import Generator, Item
from assay.tasks.language.prompts import PromptTask

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Sorting(Generator):
    """`level` symbols drawn with repetition, to be written in the order of `symbols`.

    Exact match; whitespace around the answer is ignored. Lists with the same answer are in the same split.
    """

    level: int = 8
    symbols: str = LETTERS

    def __post_init__(self) -> None:
        if not 2 <= self.level <= 200:
            raise AssayError(f"{self}: level (length of the list) must be 2 to 200")
        if len(set(self.symbols)) < 2 or len(set(self.symbols)) < len(self.symbols):
            raise AssayError(f"{self}: symbols must be two or more different characters")
        if self.symbols.split() != [self.symbols] or set(self.symbols) & set("="):
            raise AssayError(f"{self}: symbols may contain neither whitespace nor '='")

    @property
    def num_words(self) -> int:
        return self.level

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns the list of these words modulo the number of symbols."""
        places = [word % len(self.symbols) for word in words]
        answer = "".join(self.symbols[place] for place in sorted(places))
        return answer, Item("".join(self.symbols[place] for place in places) + "=", answer, answer)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the sorted list, 0 for all else."""
        return exact_match(item.answer, completion)

    def explain(self, item: Item, completion: str) -> str:
        """Returns the first place that is wrong, counted from 1; "" for the sorted list."""
        said = completion.strip()
        places = [place for place, pair in enumerate(zip_longest(item.answer, said), 1) if pair[0] != pair[1]]
        return f"wrong at {places[0]}" if places else ""


def sorting(level: int = 8, symbols: str = LETTERS) -> PromptTask:
    """Returns the task; `level` is the length of the list."""
    items = Sorting(level, symbols)
    name = f"sorting-{level}" if symbols == LETTERS else f"sorting-{level}x{len(symbols)}"
    return PromptTask(name, items, CharacterTokenizer(), max_prompt=level + 2, max_tokens=level + 1)


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "sorting": sorting,
    **{f"sorting-{level}": partial(sorting, level) for level in range(3, 13)},
}
