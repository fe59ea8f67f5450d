"""elicitation: a partner asks one of two questions a turn, which one depends on the last answer; all must be answered.

A prompt is a letter, a question and an answer are a digit each. The only reward is at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from assay.claims.testbeds.language.enumerable import CHOICES, DIGITS, SIGNS, TOKENS
from assay.core.errors import AssayError
from assay.core.record import Need, Score
from assay.rollouts import text
from assay.tasks.language.dialogue import DialogueTask, Reply, laid_out
from assay.tasks.language.prompts import prompt_ids
from assay.tasks.language.items import Item, check_split

QUESTIONS = DIGITS[:2]
MOST = 4096
"""Right conversations of a prompt that are enumerated for exact quantities."""


@runtime_checkable
class Listed(Protocol):
    """A partner whose conversations that may be right can be listed."""

    @property
    def prompts(self) -> int:
        """Number of prompts."""

    def chances(self, prompt: str) -> Mapping[str, float]:
        """Returns how often each conversation, a letter an utterance, is right; none of the others ever is."""


@dataclass(frozen=True)
class Elicitation:
    """`turns` questions, each with `accepted` right answers of ten: the uniform start succeeds with probability
    (accepted / 10)^turns. What is asked next depends on whether the answer is even, so that a policy meets other
    questions than its start.
    """

    turns: int = 5
    accepted: int = 4
    prompts: int = 4

    def __post_init__(self) -> None:
        if self.turns < 1 or not 1 <= self.accepted <= CHOICES or not 1 <= self.prompts <= len(SIGNS):
            limits = f"turns must be at least 1, accepted 1 to {CHOICES} and prompts 1 to {len(SIGNS)}"
            raise AssayError(f"{self}: {limits}")
        if self.accepted**self.turns > MOST:
            limits = f"accepted^turns, the right conversations of a prompt, must be at most {MOST}"
            raise AssayError(f"{self}: {limits}")

    def accepts(self, prompt: str, turn: int, asked: str) -> str:
        """Returns the right answers to a question, neighbours modulo ten."""
        first = text.hashed_words(f"elicitation {prompt} {turn} {asked}", 1)[0] % CHOICES
        return (DIGITS * 2)[first : first + self.accepted]

    def right(self, prompt: str) -> list[str]:
        """Returns all right conversations of a prompt, a digit a turn, the demonstrated one first."""
        found = [""]
        for turn in range(self.turns):
            asked = [asked_after(said[-1]) if said else "" for said in found]
            found = [said + one for said, q in zip(found, asked, strict=True) for one in self.accepts(prompt, turn, q)]
        return found

    def chances(self, prompt: str) -> Mapping[str, float]:
        """Returns 1 for each right conversation."""
        return dict.fromkeys(self.right(prompt), 1.0)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number, in both splits; a demonstration takes the first right
        answers.
        """
        check_split(split)
        prompt = SIGNS[ordinal % self.prompts]
        said = self.right(prompt)[0]
        return Item(prompt, said, "\n".join(said))

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns the next question, or after the last one 1 if all answers were right, else 0."""
        if len(said) < self.turns:
            return Reply(asked_after(said[-1]))
        asked = ["", *map(asked_after, said[:-1])]
        right = [bool(one) and one in self.accepts(item.prompt, turn, asked[turn]) for turn, one in enumerate(said)]
        return Reply("", Score(float(all(right))))


def asked_after(answer: str) -> str:
    """Returns the question after an answer: by whether its digit is even; the first one after anything else."""
    return QUESTIONS[DIGITS.index(answer) % 2 if answer and answer in DIGITS else 0]


@dataclass(frozen=True)
class TableDialogue(DialogueTask):
    """A conversation whose policy is a table of contexts: it chooses no end token, an utterance ends at its limit."""

    preset: str = "bigrams"

    def demonstration(self, item: Item) -> list[tuple[list[int], bool, int]]:
        """Returns the pieces of the demonstrated conversation, without end tokens."""
        said = item.demonstration.split("\n")
        pieces = [(prompt_ids(self.tokenizer, item.prompt, self.max_prompt), False, 0)]
        for turn, (words, reply) in enumerate(zip(said, self.replies(item, said), strict=True)):
            asked = self.tokenizer.encode(reply.text)
            pieces += [(self.tokenizer.encode(words), True, turn), *([(asked, False, turn + 1)] if asked else [])]
        return pieces

    @torch.no_grad()
    def exact(self, actor: Any) -> dict[str, float]:
        """Returns the probability of a right conversation, mean over prompts, from those of all that may be right."""
        partner, found = self.partner, []
        assert isinstance(partner, Listed)
        for prompt in SIGNS[: partner.prompts]:
            chances = partner.chances(prompt)
            rows = [self.demonstration(Item(prompt, "", "\n".join(said))) for said in chances]
            record = laid_out(rows, torch.zeros(len(rows), dtype=torch.int64), self.tokenizer.vocabulary.pad)
            record = record.to(next(actor.parameters()).device)
            logp = actor.score(record, frozenset({Need.LOGP})).logp.double()
            found.append(float((logp * record.mask).sum(1).exp().cpu() @ torch.tensor([*chances.values()]).double()))
        return {"pass_rate": sum(found) / len(found)}


def elicitation(turns: int = 5, accepted: int = 4, prompts: int = 4) -> TableDialogue:
    """Returns the task; `turns` is the number of questions."""
    partner = Elicitation(turns, accepted, prompts)
    return TableDialogue(
        f"elicitation-{turns}", partner, TOKENS, max_prompt=2, max_turns=turns, max_tokens=1, max_reply=1
    )
