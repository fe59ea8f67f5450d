"""stretched: the longer an input, the more digits of its code it asks for; what short inputs teach, long ones need."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.claims.testbeds.language.enumerable import Enumerable, EnumerableTask, enumerable_task
from assay.claims.testbeds.language.ladder import Ladder
from assay.core.record import Outcome
from assay.tasks.language.items import Item

FILLER = "z"


@dataclass(frozen=True)
class Stretched(Enumerable):
    """A `Ladder` whose training prompts show nothing: the one of n letters asks for the first n digits of the code.

    Training start k has 1 + k modulo `digits` letters, of problem k / digits. Evaluation asks the longest inputs alone.
    Digits after the ones that are asked for are ignored. Uniform start: success 10^-1 on the shortest inputs,
    10^-digits on the longest.
    """

    prompts: int = 4
    digits: int = 5

    @property
    def codes(self) -> Ladder:
        """The problems and their codes."""
        return Ladder(self.prompts, self.digits)

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        return self.codes.ways(prompt)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns the problem's letter, then filler; held out, the longest input of problem `ordinal`."""
        whole = self.codes.item(ordinal if split else ordinal // self.digits, 1)
        asked = self.digits if split else 1 + ordinal % self.digits
        prompt, answer = whole.prompt + FILLER * (asked - 1), whole.answer[:asked]
        return replace(whole, prompt=prompt, answer=answer, demonstration=answer, facts={"length": asked})

    def verify(self, item: Item, completion: str) -> Outcome:
        return self.codes.verify(item, completion)


def stretched(prompts: int = 4, digits: int = 5) -> EnumerableTask:
    """Returns the task; `digits` is the length of the longest input, and how rare success is on it."""
    task = enumerable_task(f"stretched-{prompts}x{digits}", Stretched(prompts, digits), digits, "reading")
    return replace(task, max_prompt=digits + 1)
