"""judging: "acea|bace=" shows two responses to be judged; it is completed by a score for each: "8,3".

A response is a word of steps. The steps b, d and f are errors, which no prompt says; the better response has fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from assay.core.errors import AssayError
from assay.core.record import Outcome, PolicyFault, Score
from assay.rollouts.judgements import leading, scores_in
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.items import Generator, Item
from assay.tasks.language.prompts import PromptTask

STEPS, ERRORS, TOP = "abcdef", "bdf", 9


def ranked(item: Item, completion: str) -> Outcome:
    """Returns 1 if the response that the answer numbers alone has the highest score, an equal share if others have it
    too (a coin is tossed), else 0; a fault unless each response of the fact `responses` has a score.
    """
    scores, responses = scores_in(completion), item.facts["responses"]
    assert isinstance(responses, Sequence), "files and tasks of responses are checked when they are made"
    if scores is None or len(scores) != len(responses):
        return PolicyFault("not one score for each response")
    first = leading(scores)
    return Score((int(item.answer) in first) / len(first))


@dataclass(frozen=True)
class Judging(Generator):
    """Responses of `level` steps; the numbers of their errors differ by `gap` (0: by any number).

    The answer is the number of the better response. Demonstrations give it any score from 2 to 9 and the other one any
    lower score. The fact `responses` holds both. Pairs are split, whatever their order.
    """

    level: int = 4
    gap: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.level <= 16 or not 0 <= self.gap <= self.level:
            raise AssayError(f"{self}: level (steps) must be 1 to 16 and gap 0 to level")

    @property
    def num_words(self) -> int:
        """Returns one for each step, and two for scores."""
        return 2 * self.level + 2

    def propose(self, words: Sequence[int]) -> tuple[str, Item] | None:
        """Returns the responses of these words; None where they have the wrong gap."""
        steps = "".join(STEPS[word % len(STEPS)] for word in words[:-2])
        responses = (steps[: self.level], steps[self.level :])
        first, second = (sum(step in ERRORS for step in one) for one in responses)
        if first == second or (self.gap and abs(first - second) != self.gap):
            return None
        high = 2 + words[-2] % (TOP - 1)
        low = 1 + words[-1] % (high - 1)
        shown, best = (f"{high},{low}", "1") if first < second else (f"{low},{high}", "2")
        return "|".join(sorted(responses)), Item(f"{'|'.join(responses)}=", best, shown, {"responses": responses})

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns the score of `ranked`."""
        return ranked(item, completion)


def judging(level: int = 4, gap: int = 0) -> PromptTask:
    """Returns the task; `level` is the number of steps of a response."""
    name = f"judging-{level}" if not gap else f"judging-{level}-gap-{gap}"
    return PromptTask(name, Judging(level, gap), JUDGED, max_prompt=2 * level + 3, max_tokens=4)


JUDGED = CharacterTokenizer(CharacterTokenizer().alphabet.replace('"', "|"))
"""The tasks' alphabet with a bar in place of the quotation mark: as many tokens."""

LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "judging": judging,
    **{f"judging-{level}": partial(judging, level) for level in (2, 4, 8)},
}
