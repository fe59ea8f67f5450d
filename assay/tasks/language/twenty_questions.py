"""twenty-questions: after "no-red", "cat ?" is answered by "yes-cat" or "no-cat", and "gold cat new !" is a guess. The
only reward is at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from assay.core.errors import AssayError
from assay.core.record import PolicyFault, Score
from assay.rollouts.words import WordTokenizer
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.items import Generator, Item

ATTRIBUTES = (
    ("red", "blue", "gold"),
    ("cat", "dog", "cup"),
    ("big", "old", "new"),
    ("home", "park", "farm"),
    ("one", "two", "many"),
)
ASK, GUESS = "?", "!"
NAMES = tuple(word for words in ATTRIBUTES for word in words)


def reply_of(value: str, secret: Sequence[str]) -> str:
    """Returns the answer to a question: one word that repeats the value, so that small models can read it."""
    return f"yes-{value}" if value in secret else f"no-{value}"


WORDS = (ASK, GUESS, *NAMES, *(reply_of(name, known) for known in (NAMES, ()) for name in NAMES))


@dataclass(frozen=True)
class TwentyQuestions(Generator):
    """A secret of `level` attributes, each one of three values, all equally likely. The prompt is the answer to a first
    question.

    "VALUE ?" is answered by yes-VALUE or no-VALUE; one value of each attribute and "!" is a guess and ends the game,
    with 1 if it is right; anything else is answered by "?" and costs a turn. Two questions per attribute are always
    enough, one of them is given, and there are turns for the others and the guess: a policy that never asks what is
    known always wins. The demonstrations ask at random, known values too, and then guess right by luck, so a cloned
    policy often fails. Games of the same secret and the same first question are in the same split.
    """

    level: int = 3

    def __post_init__(self) -> None:
        if not 2 <= self.level <= len(ATTRIBUTES):
            raise AssayError(f"{self}: level (attributes of the secret) must be 2 to {len(ATTRIBUTES)}")

    @property
    def introduction(self) -> str:
        """Returns the instructions: the possible secrets, how to ask, how to guess."""
        known = ATTRIBUTES[: self.level]
        values = ", ".join(f"one of {'/'.join(words)}" for words in known)
        guess = " ".join(words[0] for words in known)
        return (
            f"Find out my secret: {values}. Ask for a value with '{known[0][0]} {ASK}'. Guess once, when you know it, "
            f"with '{guess} {GUESS}'. Write nothing else. My first answer:"
        )

    @property
    def num_words(self) -> int:
        """Returns the words of the attributes, of the number of questions, and of each question."""
        return self.level + 1 + 2 * self.level

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Returns the secret, the first question, and more questions at random."""
        known = ATTRIBUTES[: self.level]
        secret = [values[word % len(values)] for values, word in zip(known, words, strict=False)]
        flat = [value for values in known for value in values]
        first, *others = [flat[word % len(flat)] for word in words[self.level + 1 :]]
        asked = others[: self.level - 1 + words[self.level] % (self.level + 1)]
        answer, prompt = " ".join(secret), f"{reply_of(first, secret)}\n"
        shown = [*(f"{value} {ASK}" for value in asked), f"{answer} {GUESS}"]
        return f"{answer}: {first}", Item(prompt, answer, "\n".join(shown), {"secret": tuple(secret)})

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns yes, no, or the outcome of a guess."""
        words, secret = said[-1].split(), item.facts["secret"]
        assert isinstance(secret, tuple)
        if words and words[-1] == GUESS:
            if len(words) != self.level + 1:
                return Reply("wrong", PolicyFault("a guess names one value of each attribute"))
            is_right = sorted(words[:-1]) == sorted(secret)
            return Reply("right" if is_right else "wrong", Score(float(is_right)))
        if len(words) == 2 and words[1] == ASK and words[0] in NAMES:
            return Reply(f"{reply_of(words[0], secret)}\n")
        return Reply(f"{ASK}\n")


def twenty_questions(level: int = 3) -> DialogueTask:
    """Returns the task; `level` is the number of attributes."""
    return DialogueTask(
        f"twenty-questions-{level}",
        TwentyQuestions(level),
        WordTokenizer(WORDS),
        max_prompt=2,
        max_turns=2 * level,
        max_tokens=level + 2,
        max_reply=1,
    )


LEVELS: Mapping[str, Callable[[], DialogueTask]] = {
    "twenty-questions": twenty_questions,
    **{f"twenty-questions-{level}": partial(twenty_questions, level) for level in range(2, 6)},
}
