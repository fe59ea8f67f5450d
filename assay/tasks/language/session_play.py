"""Plays conversations with a session for each row: by a policy, and as the items demonstrate them.

Axes: B conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault
from assay.ops import random
from assay.rollouts import text
from assay.rollouts.dialogues import converse
from assay.rollouts.text import Tokenizer
from assay.rollouts.turns import Limits
from assay.tasks.language import session_records as records
from assay.tasks.language.items import Item
from assay.tasks.language.laid_out import laid_out
from assay.tasks.language.open_sessions import Meter, OpenSessions, SessionRow
from assay.tasks.language.prompts import completion_ids
from assay.tasks.language.sessions import Sessions, Waiting


@dataclass(frozen=True)
class InSessions:
    """Conversations with the sessions of a partner. `encoded(reply, last)` returns the tokens of a reply."""

    partner: Sessions
    tokenizer: Tokenizer
    limits: Limits
    encoded: Callable[[str, int], list[int]]
    waiting: Waiting
    meter: Meter
    not_a_part: ClassVar[str] = "how a task plays"

    def opened(self, rows: Sequence[SessionRow]) -> OpenSessions:
        """Returns the sessions of rows, to be opened by `with`."""
        read, eos = partial(text.readable, self.tokenizer), self.tokenizer.vocabulary.eos
        return OpenSessions(
            self.partner, rows, self.waiting, turns=self.limits.turns, eos=eos, read=read, encoded=self.encoded
        )

    def talk(
        self,
        actor: Any,
        begun: Experience,
        items: Sequence[Item],
        samples: np.ndarray,
        draw: Draw,
        split: int,
        limit: int,
        greedy: bool,
    ) -> Experience:
        """Plays at most `limit` more decisions per row. The seed of a session is that of (start, sample), or the one
        recorded for a row that was begun before.
        """
        fresh = seeds_of(draw, begun.column("start").numpy(), samples)
        seeds = begun.column(records.SEED).tolist() if records.SEED in begun.extra else fresh
        rows = [SessionRow(*one) for one in zip(items, seeds, records.reply_tokens(begun), strict=True)]
        vocabulary = self.tokenizer.vocabulary
        with self.opened(rows) as sessions:
            played = converse(
                actor, begun, samples, draw, sessions, limits=self.limits, limit=limit, vocabulary=vocabulary,
                greedy=greedy,
            )  # fmt: skip
        sessions.measure(self.meter, split)
        return records.with_session_columns(played, seeds, sessions.results(), earned_by(rows))

    def demonstrated(
        self, items: Sequence[Item], prompts: Sequence[list[int]], start_B: Tensor, task: str
    ) -> Experience:
        """Returns each demonstration, played with a session; AssayError if that fails, or has several utterances
        and cannot be repeated.
        """
        if not self.partner.is_repeatable and any("\n" in item.demonstration for item in items):
            why = "its sessions cannot be repeated"
            raise AssayError(f"task '{task}' has no demonstrations: {why}. Use a method that needs none, --warmup 0")
        seeds = seeds_of(Draw(0), start_B.numpy(), np.zeros(len(items), dtype=np.int64))
        lines = [item.demonstration.split("\n") for item in items]
        said = [[completion_ids(self.tokenizer, one, self.limits.tokens) for one in own] for own in lines]
        rows = [SessionRow(item, seed) for item, seed in zip(items, seeds, strict=True)]
        with self.opened(rows) as sessions:
            heard = sessions.exchanged(said)
        if any(isinstance(row.outcome, InfraFault) for row in rows):
            raise AssayError(f"task '{task}': a demonstration failed: {sessions.causes[0]}. Repair the session")
        whole = []
        for prompt, own, replies in zip(prompts, said, heard, strict=True):
            pieces = [(prompt, False, 0)]
            for turn, (ids, reply) in enumerate(zip(own, replies, strict=False)):  # a session may end before
                pieces += [(ids, True, turn), (reply, False, turn + 1)]
            whole.append(pieces[:-1])
        shown = laid_out(whole, start_B, self.tokenizer.vocabulary.pad)
        return records.with_session_columns(shown, seeds, sessions.results(), earned_by(rows))


def earned_by(rows: Sequence[SessionRow]) -> list[list[float]]:
    """Returns the rewards of the utterances of each row."""
    return [[reply.reward for reply in row.replies] for row in rows]


def seeds_of(draw: Draw, starts: np.ndarray, samples: np.ndarray) -> list[int]:
    """Returns the seed of the session of each (start, sample): 63 bits, so that a column can hold it."""
    return [int(word) >> 1 for word in random.hashed(draw, starts, samples)]
