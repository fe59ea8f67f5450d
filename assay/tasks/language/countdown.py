"""countdown: "3,7,5:26=" is completed by an expression such as "3*7+5" that makes 26 out of the numbers given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from assay.core.errors import AssayError
from assay.core.record import Outcome, PolicyFault, Score
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.arithmetic import OPERATORS, RANKS, WHITESPACE, evaluated
from assay.tasks.language.items import Generator, Item
from assay.tasks.language.prompts import PromptTask

OPERATIONS = "+-*"


class Written(NamedTuple):
    """An expression: its value, its text, and the rank of its outermost operation (3 for a number)."""

    value: int
    text: str
    rank: int


def write_operation(left: Written, symbol: str, right: Written) -> Written:
    """Joins two expressions by a symbol, with only the brackets that are needed."""
    rank = RANKS[symbol]
    needs_brackets = right.rank < rank or (right.rank == rank and symbol in "-/")
    first = f"({left.text})" if left.rank < rank else left.text
    second = f"({right.text})" if needs_brackets else right.text
    return Written(int(OPERATORS[symbol](left.value, right.value)), first + symbol + second, rank)


@dataclass(frozen=True)
class Countdown(Generator):
    """`level` numbers in 1 .. `largest` and a target in 1 .. `highest` that can be made of all of them by + - *.

    A correct answer is an expression over + - * / and brackets, of exact rational value equal to the target, that uses
    each given number at most once; any solution counts. There is no partial credit; whitespace around the expression
    is ignored. Intermediate values of the demonstration are positive integers, and the target differs from all numbers.
    Problems that differ only in the order of their numbers are in the same split.
    """

    level: int = 3
    largest: int = 20
    highest: int = 99

    def __post_init__(self) -> None:
        if not (2 <= self.level <= 10 and 4 <= self.largest <= 9999 and 4 <= self.highest <= 999999):
            raise AssayError(f"{self}: level must be 2 to 10, largest 4 to 9999, highest 4 to 999999")

    @property
    def num_words(self) -> int:
        """Returns one word per number and one per operation."""
        return 2 * self.level - 1

    def propose(self, words: Sequence[int]) -> tuple[str, Item] | None:
        """Joins two parts, drawn at random, until one is left; returns None if a value leaves its range."""
        numbers = [1 + word % self.largest for word in words[: self.level]]
        parts = [Written(number, str(number), 3) for number in numbers]
        for word in words[self.level :]:
            word, symbol = divmod(word, len(OPERATIONS))
            word, first = divmod(word, len(parts))
            left = parts.pop(first)
            right = parts.pop(word % len(parts))
            parts.append(write_operation(left, OPERATIONS[symbol], right))
            if parts[-1].value < 1:
                return None
        target, solution, _ = parts[0]
        if target > self.highest or target in numbers:
            return None
        facts = {"numbers": tuple(numbers), "target": target}
        content = f"{','.join(map(str, sorted(numbers)))}:{target}"
        return content, Item(f"{','.join(map(str, numbers))}:{target}=", str(target), solution, facts)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 if the expression obeys the rules and makes the target, else 0."""
        value, used, reason = evaluated(completion.strip(WHITESPACE))
        if value is None:
            return PolicyFault(reason)
        numbers = item.facts["numbers"]
        assert isinstance(numbers, tuple)
        if Counter(used) - Counter(numbers):
            return PolicyFault("uses a number that is not given, or a number twice")
        return Score(float(value == item.facts["target"]))


def countdown(level: int = 3, largest: int = 20, highest: int = 99) -> PromptTask:
    """Returns the task of `level` numbers, with room for a pair of brackets around every operation."""
    items = Countdown(level, largest, highest)
    is_default = (largest, highest) == (20, 99)
    name = f"countdown-{level}" if is_default else f"countdown-{level}x{largest}x{highest}"
    digits = len(str(largest))
    longest_prompt = 1 + level * (digits + 1) + len(str(highest)) + 1
    longest = level * digits + 3 * (level - 1) + 1
    return PromptTask(name, items, CharacterTokenizer(), longest_prompt, max_tokens=longest)


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "countdown": countdown,
    **{f"countdown-{level}": partial(countdown, level) for level in range(2, 6)},
}
