"""scratch: "2043?31=" is completed by "2214>41": running sums modulo 5, a mark, then the last two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from assay.core.answers import AnswerFormat
from assay.core.errors import AssayError
from assay.core.record import Outcome
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.arithmetic import match_after
from assay.tasks.language.items import Generator, Item
from assay.tasks.language.prompts import PromptTask

MODULUS, MARK = 5, ">"
TOLD, NOT_TOLD = "!", "?"


@dataclass(frozen=True)
class Scratch(Generator):
    """`level` digits from 0 to 4. The answer is the last running sum modulo 5 and the one before it: two tokens.

    In a share `guessable` of all items the prompt itself ends with the answer, after "!"; in the others two digits that
    mean nothing stand there, after "?". Whatever stands before the only mark is reasoning and is not verified;
    demonstrations write all running sums, and nothing where the answer is told. The fact `guessable` says which.
    """

    level: int = 4
    guessable: float = 0.5

    def __post_init__(self) -> None:
        if not 2 <= self.level <= 12 or not 0.0 <= self.guessable <= 1.0:
            raise AssayError(f"{self}: level (digits) must be 2 to 12 and guessable 0 to 1")

    @property
    def num_words(self) -> int:
        """Returns one for each digit, two digits that mean nothing, and whether the answer is told."""
        return self.level + 3

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        digits = [word % MODULUS for word in words[: self.level]]
        sums = [total % MODULUS for total in accumulate(digits)]
        answer = f"{sums[-1]}{sums[-2]}"
        is_told = words[-1] < self.guessable * 2.0**64
        shown = TOLD + answer if is_told else NOT_TOLD + "".join(str(word % MODULUS) for word in words[-3:-1])
        content = "".join(map(str, digits))
        steps = "" if is_told else "".join(map(str, sums))
        return content, Item(f"{content}{shown}=", answer, f"{steps}{MARK}{answer}", {"guessable": is_told})

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for the answer after the only mark, 0 for all else."""
        return match_after(MARK, item.answer, completion)


def scratch(level: int = 4, guessable: float = 0.5) -> PromptTask:
    """Returns the task; `level` is the number of digits."""
    name = f"scratch-{level}" if guessable == 0.5 else f"scratch-{level}-{guessable:g}"
    items, written = Scratch(level, guessable), AnswerFormat(MARK)
    return PromptTask(name, items, CharacterTokenizer(), level + 5, level + 4, answer_format=written)


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "scratch": scratch,
    **{f"scratch-{level}": partial(scratch, level) for level in (2, 3, 4, 6)},
}
