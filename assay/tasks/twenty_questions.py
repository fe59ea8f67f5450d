"""twenty-questions: "red blue gold ; cat dog cup ; big old new" are in play; "red ?" is answered, "gold cat new !" is
a guess. The reward comes at the end alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from assay.ops.words import WordTokenizer
from assay.tasks.dialogue import DialogueTask, Reply
from assay.tasks.prompts import Item, generated_item
from assay.types import AssayError, PolicyFault, Score

ATTRIBUTES = (
    ("red", "blue", "gold", "pink", "grey", "white"),
    ("cat", "dog", "cup", "hat", "key", "coin"),
    ("big", "old", "new", "wet", "hot", "soft"),
    ("home", "park", "shop", "farm", "school", "beach"),
)
VALUES = 3
"""Values of each attribute that are in play."""
ASK, GUESS, NEXT, YES, NO = "?", "!", ";", "yes", "no"
WORDS = (ASK, GUESS, NEXT, YES, NO, *(word for words in ATTRIBUTES for word in words))


@dataclass(frozen=True)
class TwentyQuestions:
    """A secret of `level` attributes with three values in play each, all equally likely; 3^level secrets a game.

    "VALUE ?" is answered by yes or no; one value of each attribute and "!" is a guess and ends the game, with 1 if it
    is right; anything else is answered by "?" and costs a turn. Two questions an attribute are always enough, and
    there are turns for them and the guess: who asks what is not known yet wins always. The demonstrations ask at
    random, what they know already too, and then guess right by luck: whoever copies them often guesses wrong.
    """

    level: int = 3

    def __post_init__(self) -> None:
        if not 2 <= self.level <= len(ATTRIBUTES):
            raise AssayError(f"{self}: level (attributes of the secret) must be 2 to {len(ATTRIBUTES)}")

    @property
    def num_words(self) -> int:
        """For each attribute its values and the secret, and for each question."""
        return (VALUES + 1) * self.level + 1 + 2 * self.level

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """The values in play, the secret, and questions at random."""
        rest = iter(words)
        in_play, secret = [], []
        for known in ATTRIBUTES[: self.level]:
            left = list(known)
            in_play.append([left.pop(next(rest) % len(left)) for _ in range(VALUES)])
            secret.append(in_play[-1][next(rest) % VALUES])
        flat = [value for values in in_play for value in values]
        asked = [f"{flat[next(rest) % len(flat)]} {ASK}" for _ in range(self.level + next(rest) % (self.level + 1))]
        answer = " ".join(secret)
        prompt = f" {NEXT} ".join(" ".join(values) for values in in_play) + "\n"
        content = f"{' '.join(sorted(flat))}: {answer}"
        return content, Item(prompt, answer, "\n".join([*asked, f"{answer} {GUESS}"]), {"secret": frozenset(secret)})

    def item(self, ordinal: int, split: int) -> Item:
        """Item `ordinal` of the split."""
        return generated_item(self, ordinal, split)

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """yes, no, or the outcome of a guess."""
        words, secret = said[-1].split(), item.facts["secret"]
        assert isinstance(secret, frozenset)
        if words and words[-1] == GUESS:
            if len(words) != self.level + 1:
                return Reply("", PolicyFault("a guess names one value of each attribute"))
            return Reply("", Score(float(frozenset(words[:-1]) == secret)))
        if len(words) == 2 and words[1] == ASK and words[0] not in WORDS[:5]:
            return Reply(f"{YES if words[0] in secret else NO}\n")
        return Reply(f"{ASK}\n")


def twenty_questions(level: int = 3) -> DialogueTask:
    """The task; `level` is the number of attributes. There are turns for two questions an attribute and the guess."""
    return DialogueTask(
        f"twenty-questions-{level}",
        TwentyQuestions(level),
        WordTokenizer(WORDS),
        max_prompt=(VALUES + 1) * level,
        max_turns=2 * level + 1,
        max_tokens=level + 2,
        max_reply=1,
    )


LEVELS: Mapping[str, Callable[[], DialogueTask]] = {
    "twenty-questions": twenty_questions,
    **{f"twenty-questions-{level}": partial(twenty_questions, level) for level in range(2, 5)},
}
