"""turns: a lock that is opened in several turns, one digit each, after random replies that change the right digit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assay.claims.testbeds.language.enumerable import CHOICES, DIGITS, SIGNS, TOKENS, code_of, quantities
from assay.core.errors import AssayError
from assay.core.record import Need, Score
from assay.rollouts import text
from assay.tasks.language.dialogue import DialogueTask, Reply, laid_out
from assay.tasks.language.prompts import Item, check_split, prompt_ids


@dataclass(frozen=True)
class Turns:
    """`turns` digits, one a turn; each reply is one of `replies` digits, drawn by the start and the turn alone.

    At each turn `accepted` digits are right, those from (code + last reply) modulo 10 on; the first turn has no reply.
    The reward is 1 after the last turn if all were right: the uniform start gets it with probability
    (accepted / 10)^turns.
    """

    turns: int = 3
    replies: int = 2
    accepted: int = 3
    prompts: int = 4

    def __post_init__(self) -> None:
        if not (1 <= self.turns <= 32 and 1 <= self.replies <= CHOICES and 1 <= self.accepted <= CHOICES):
            raise AssayError(f"{self}: turns must be 1 to 32, replies and accepted 1 to {CHOICES}")

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number in both splits; the ordinal decides the replies."""
        check_split(split)
        prompt = ordinal % self.prompts
        words = text.hashed_words(f"replies {split} {ordinal}", self.turns)
        replies = "".join(DIGITS[word % self.replies] for word in words)
        return self.with_replies(prompt, replies)

    def with_replies(self, prompt: int, replies: str) -> Item:
        """Returns the item of a prompt with these replies; the last is never read."""
        rights = [self.right(prompt, turn, replies[turn - 1] if turn else "0")[0] for turn in range(self.turns)]
        return Item(SIGNS[prompt], "".join(rights), "\n".join(rights), {"replies": replies})

    def right(self, prompt: int, turn: int, reply: str) -> str:
        """Returns the accepted digits at a turn after a reply."""
        code = code_of(f"turns {prompt}", self.turns)
        first = (int(code[turn]) + int(reply)) % CHOICES
        return (DIGITS * 2)[first : first + self.accepted]

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns the reply of the turn, and the outcome after the last one."""
        replies, prompt = str(item.facts["replies"]), SIGNS.index(item.prompt)
        if len(said) < self.turns:
            return Reply(replies[len(said) - 1])
        before = DIGITS[0] + replies
        opens = all(one and one in self.right(prompt, turn, before[turn]) for turn, one in enumerate(said))
        return Reply("", Score(float(opens)))


@dataclass(frozen=True)
class TurnsTask(DialogueTask):
    """The conversations of `Turns`, with an exact pass rate for policies that read the prompt, the place and the last
    reply only.
    """

    preset: str = "bigrams"

    def demonstration(self, item: Item) -> list[tuple[list[int], bool, int]]:
        """Returns prompt, digits and replies in their order; a digit is a whole utterance and has no end token."""
        pieces = [(prompt_ids(self.tokenizer, item.prompt, self.max_prompt), False, 0)]
        said, replies = item.demonstration.split("\n"), str(item.facts["replies"])
        for turn, digit in enumerate(said):
            pieces.append((self.tokenizer.encode(digit), True, turn))
            if turn + 1 < len(said):
                pieces.append((self.tokenizer.encode(replies[turn]), False, turn + 1))
        return pieces

    @torch.no_grad()
    def exact(self, actor: Any) -> dict[str, float]:
        """Returns the pass rate and what follows from it: the product over turns of the mean over replies of
        pi(accepted digits), since replies are independent.
        """
        partner = self.partner
        assert isinstance(partner, Turns)
        heard = DIGITS[: partner.replies]
        items = [
            partner.with_replies(prompt, reply * partner.turns) for prompt in range(partner.prompts) for reply in heard
        ]
        record = laid_out([self.demonstration(item) for item in items], torch.arange(len(items)), 0)
        record = record.to(next(actor.parameters()).device)
        logits = actor.score(record, frozenset({Need.LOGITS})).logits[:, 2::2].double().cpu()
        first = TOKENS.ids[DIGITS[0]]
        chance = logits.softmax(-1)[..., first : first + CHOICES].view(partner.prompts, len(heard), -1, CHOICES)
        accepted = torch.tensor(
            [
                [
                    [[digit in partner.right(prompt, turn, reply if turn else "0") for digit in DIGITS]
                     for turn in range(partner.turns)]
                    for reply in heard
                ]
                for prompt in range(partner.prompts)
            ]
        )  # fmt: skip
        rate = (chance * accepted).sum(-1).mean(1).prod(-1)
        return quantities(list(rate.unsqueeze(1)))


def turns(turns: int = 3, replies: int = 2, accepted: int = 3, prompts: int = 4) -> TurnsTask:
    """Returns the task; `turns` is the delay of the reward, `replies` the number of different replies."""
    partner = Turns(turns, replies, accepted, prompts)
    return TurnsTask(f"turns-{turns}x{replies}", partner, TOKENS, 2, max_turns=turns, max_tokens=1, max_reply=1)
