"""evidence: name the chunks that hold what is asked, one digit each, then answer; right only from the right chunks.

A stand-in for a long text: who has not found all the evidence cannot know the answer. The fact `evidence` lists it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

from assay.claims.testbeds.language.enumerable import DIGITS, Enumerable, EnumerableTask, code_of, enumerable_task
from assay.core.answers import AnswerFormat
from assay.core.errors import AssayError
from assay.rollouts import text
from assay.tasks.language.items import Item


@dataclass(frozen=True)
class Evidence(Enumerable):
    """`hops` of ten chunks hold the evidence, others for every prompt; in any order, then one digit is the answer.

    The uniform start names all of them with probability hops! / 10^hops, and is right a tenth of that.
    """

    hops: int = 3
    prompts: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.hops <= 4:
            raise AssayError(f"{self}: hops must be 1 to 4")

    def chunks(self, prompt: int) -> list[str]:
        """Returns the chunks that hold the evidence."""
        free = list(DIGITS)
        return [free.pop(word % len(free)) for word in text.hashed_words(f"chunks {prompt}", self.hops)]

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        """Returns the right answers: one class, since they say the same."""
        answer = code_of(f"answer {prompt}", 1)
        return (tuple("".join(some) + answer for some in permutations(self.chunks(prompt))),)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number, in both splits."""
        found, chunks = super().item(ordinal, split), self.chunks(ordinal % self.prompts)
        return replace(found, facts={**found.facts, "evidence": [int(one) for one in chunks]})


def evidence(hops: int = 3, prompts: int = 4) -> EnumerableTask:
    """Returns the task; with every hop the outcome alone says less about each of them."""
    written = AnswerFormat(form=r"\A" + "".join(rf"(?P<id{place}>\d)" for place in range(hops)) + r"\d\Z")
    return enumerable_task(f"evidence-{hops}", Evidence(hops, prompts), hops + 1, answer_format=written)
