"""calculator: "47*83=" is answered by "3901"; before that, "[47*83]" calls a calculator, which writes 3901."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from assay.core.errors import AssayError
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.arithmetic import MAX_DIGITS, WHITESPACE, evaluated, exact_match
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.items import Generator, Item

OPEN, CLOSE, NO_NUMBER = "[", "]", "?"


@dataclass(frozen=True)
class Calculator(Generator):
    """The product of two numbers of `level` digits, too hard for a small model without the tool.

    An utterance in square brackets goes to the calculator: exact rational arithmetic over + - * / and brackets, parsed
    and never executed. It writes the value, or "?" if it does not exist or is too long. Any other utterance is the
    answer and ends the episode, with 1 for the product and nothing else. Every second demonstration uses the
    calculator, the others state the product directly, which a cloned model cannot reproduce. Products that differ only
    in their order are in the same split.
    """

    level: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.level <= MAX_DIGITS:
            raise AssayError(f"{self}: level (digits of a number) must be 1 to {MAX_DIGITS}")

    @property
    def introduction(self) -> str:
        """Returns the instructions: how to call the calculator, and how to answer."""
        asked = f"{OPEN}12*34{CLOSE}"
        return f"Write {asked} alone to have 12*34 computed. When you know the answer, write the number alone."

    @property
    def num_words(self) -> int:
        return 3

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns a product of numbers from 2 on, without leading zeros."""
        lowest = max(2, 10 ** (self.level - 1))
        left, right = (lowest + word % (10**self.level - lowest) for word in words[:2])
        asked, answer = f"{left}*{right}", str(left * right)
        shown = answer if words[2] % 2 else f"{OPEN}{asked}{CLOSE}\n{answer}"
        return f"{min(left, right)}*{max(left, right)}", Item(f"{asked}=", answer, shown)

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns the calculator's result for an utterance in square brackets, else the outcome."""
        words = said[-1].strip(WHITESPACE)
        if words.startswith(OPEN) and words.endswith(CLOSE):
            value, _, _ = evaluated(words[1:-1])
            shown = NO_NUMBER if value is None else str(value)
            return Reply(f"{shown if len(shown) <= 2 * self.level else NO_NUMBER}\n")
        outcome = exact_match(item.answer, words)
        return Reply("right" if outcome.value else "wrong", outcome)  # type: ignore[union-attr]


def calculator(level: int = 2) -> DialogueTask:
    """Returns the task; `level` is the number of digits. The calculator can be called twice."""
    return DialogueTask(
        f"calculator-{level}",
        Calculator(level),
        CharacterTokenizer(),
        max_prompt=2 * level + 3,
        max_turns=3,
        max_tokens=2 * level + 4,
        max_reply=2 * level + 1,
    )


LEVELS: Mapping[str, Callable[[], DialogueTask]] = {
    "calculator": calculator,
    **{f"calculator-{level}": partial(calculator, level) for level in range(1, 5)},
}
