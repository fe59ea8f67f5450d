"""register-walk: follow a permutation of the digits 1 to 9 for a number of steps, writing every state, then 0.

Lengths are heavy-tailed over the prompts: a few long answers decide how long a step of the loop takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.claims.testbeds.language.enumerable import DIGITS, SIGNS, TOKENS, Enumerable, EnumerableTask, ways_of
from assay.core.errors import AssayError
from assay.core.record import Outcome, Score
from assay.rollouts import text
from assay.tasks.language.items import Item

STOP, STATES = DIGITS[0], DIGITS[1:]


@dataclass(frozen=True)
class Walk(Enumerable):
    """Prompt p of P asks for min(longest, round(shortest * ((P - p) / P)^(-1 / tail))) states and the stop digit.

    The score is the share of the answer that is right before its first mistake. A large `tail` makes all lengths equal
    to `shortest`; at tail 1 the last of P prompts is P times as long.
    """

    tail: float = 1.0
    shortest: int = 3
    longest: int = 32
    prompts: int = 16

    def __post_init__(self) -> None:
        if not 0.1 <= self.tail <= 100 or not 1 <= self.shortest <= self.longest <= 128:
            raise AssayError(f"{self}: tail must be 0.1 to 100 and 1 <= shortest <= longest <= 128")

    def length(self, prompt: int) -> int:
        """Returns the number of states of a prompt's answer."""
        return min(self.longest, round(self.shortest * ((self.prompts - prompt) / self.prompts) ** (-1.0 / self.tail)))

    def bucket(self, prompt: int) -> str:
        """Returns `long` for answers of more than twice the shortest length, else `short`."""
        return "long" if self.length(prompt) > 2 * self.shortest else "short"

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        words, free = text.hashed_words(f"walk {prompt}", len(STATES) + 1), list(STATES)
        image = dict(zip(STATES, [free.pop(word % len(free)) for word in words[1:]], strict=True))
        path = [STATES[words[0] % len(STATES)]]
        while len(path) < self.length(prompt):
            path.append(image[path[-1]])
        return (("".join(path) + STOP,),)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns the share of the answer before the first mistake."""
        path = ways_of(self, SIGNS.index(item.prompt))[0][0]
        right = next((i for i, (a, b) in enumerate(zip(path, completion, strict=False)) if a != b), len(completion))
        return Score(min(right, len(path)) / len(path))


def register_walk(tail: float = 1.0, shortest: int = 3, longest: int = 32, prompts: int = 16) -> EnumerableTask:
    """Returns the task; `tail` is the exponent of the lengths."""
    items = Walk(tail, shortest, longest, prompts)
    return EnumerableTask(f"register-walk-{tail:g}", items, TOKENS, 2, longest + 1, (STOP,), preset="stale")
