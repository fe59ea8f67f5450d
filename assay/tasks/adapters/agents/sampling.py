"""Requests that arrive together are sampled together, each with its own limit and its own random numbers.

Axes: B requests, N tokens, V vocabulary.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.http import Refused
from assay.core.record import Need
from assay.decoding.sampling_parameters import Narrowing, unwrapped
from assay.ops.decoded import Stop
from assay.rollouts import text
from assay.rollouts.completions import Ends, Remote, answers
from assay.rollouts.text import Tokenizer

MOST_ROWS = 256
"""Rows that are sampled at once."""
Alternatives = Sequence[Sequence[tuple[int, float]]]
"""The likeliest tokens at each place of a reply, with their log-probabilities."""
WINDOW = 0.005
"""Seconds that the first of several requests waits for the others."""


@dataclass(frozen=True)
class Row:
    """One reply to sample: tokens so far, the number of its random stream, where it ends, and how it is drawn."""

    prompt: tuple[int, ...]
    seed: int
    max_tokens: int
    greedy: bool = False
    narrowing: Narrowing = Narrowing()
    stops: tuple[str, ...] = ()
    alternatives: int = 0
    not_a_part: ClassVar[str] = "a row of a request"

    @property
    def kind(self) -> tuple[Any, ...]:
        """Rows of one kind are decoded together: limits are then at most twice the smallest."""
        return self.greedy, self.narrowing, self.stops, (self.max_tokens - 1).bit_length()


@dataclass(frozen=True)
class Reply:
    """The tokens of a reply with their log-probabilities, and whether it ended by its own decision."""

    tokens: tuple[int, ...]
    logp: tuple[float, ...]
    has_ended: bool
    logp_model: tuple[float, ...] | None = None
    versions: tuple[int, ...] | None = None
    likeliest: Alternatives | None = None
    version: str = ""


def sampled(actor: Any, rows: Sequence[Row], tokenizer: Tokenizer) -> list[Reply]:
    """Returns a reply for each row. Its token at time t comes from the uniform number of (seed, t) alone."""
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        kinds.setdefault(row.kind, []).append(place)
    found: dict[int, Reply] = {}
    for places in kinds.values():
        for first in range(0, len(places), MOST_ROWS):
            some = places[first : first + MOST_ROWS]
            found |= zip(some, of_one_kind(actor, [rows[place] for place in some], tokenizer), strict=True)
    return [found[place] for place in range(len(rows))]


def of_one_kind(actor: Any, rows: Sequence[Row], tokenizer: Tokenizer) -> list[Reply]:
    """Returns replies of rows that differ in prompt, seed and limit only."""
    one, most = rows[0], max(row.max_tokens for row in rows)
    stop = Stop(tokenizer.decode, one.stops) if one.stops else None
    ends, prompts = Ends(most, tokenizer.vocabulary, stop), [list(row.prompt) for row in rows]
    starts, seeds = np.zeros(len(rows), dtype=np.int64), np.array([row.seed for row in rows], dtype=np.uint64)
    who = one.narrowing.wrap(actor) if one.narrowing.changes else actor
    inner, narrowing = unwrapped(who)
    if isinstance(inner, Remote):
        written = inner.answers(prompts, starts, seeds, ends, greedy=one.greedy, narrowing=narrowing)
    else:
        written = answers(who, prompts, starts, seeds, ends, greedy=one.greedy)
    limit = torch.tensor([row.max_tokens for row in rows])
    length = torch.minimum(written.length, limit).tolist()
    ended = (written.has_ended & (written.length <= limit)).tolist()

    def cut(values: torch.Tensor | None, place: int) -> Any:
        return None if values is None else tuple(values[place, : length[place]].tolist())

    columns = (written.tokens, written.logp, written.logp_model, written.version)
    cuts = [[cut(values, place) for values in columns] for place in range(len(rows))]
    top = [
        likeliest(inner, row, one[0], narrowing) if row.alternatives else None
        for row, one in zip(rows, cuts, strict=True)
    ]
    return [
        Reply(tokens, logp, is_over, model, versions, others)
        for (tokens, logp, model, versions), is_over, others in zip(cuts, ended, top, strict=True)
    ]


@torch.no_grad()
def likeliest(actor: Any, row: Row, tokens: Sequence[int], narrowing: Narrowing) -> Alternatives:
    """Returns the likeliest tokens at each place of a reply, read again as a whole; Refused if another process has the
    policy.
    """
    if not isinstance(actor, nn.Module):
        raise Refused(400, "'top_logprobs' needs the policy in this process. Leave it out.")
    read = text.written([row.prompt], [tokens], torch.zeros(1, dtype=torch.long), 0)
    read = read.to(next(actor.parameters()).device)
    scored: Tensor = actor.score(read, frozenset({Need.LOGITS})).logits  # type: ignore[operator]
    values = narrowing.of(scored[read.mask].float()) if narrowing.changes else scored[read.mask].float()
    best = values.log_softmax(-1).topk(min(row.alternatives, values.shape[-1]), -1)
    return [
        list(zip(ids, numbers, strict=True))
        for ids, numbers in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


# ---------------------------------------------------------------------------------------------------- the queue
@dataclass(eq=False)
class Pending:
    """Rows of one request that wait for their replies."""

    rows: Sequence[Row]
    done: threading.Event = field(default_factory=threading.Event)
    replies: list[Reply] | None = None
    refused: Refused | None = None


class Queue:
    """Requests of many threads, sampled by one."""

    def __init__(self) -> None:
        self.waiting: list[Pending] = []
        self.changed = threading.Condition()
        self.is_closed = False

    def ask(self, rows: Sequence[Row], seconds: float) -> list[Reply]:
        """Returns the replies to some rows; Refused after `seconds`, or when the queue is closed."""
        one = Pending(rows)
        with self.changed:
            if self.is_closed:
                raise Refused(503, "this endpoint is closed. Its episode is over.")
            self.waiting.append(one)
            self.changed.notify_all()
        if not one.done.wait(seconds):
            with self.changed:
                self.waiting = [other for other in self.waiting if other is not one]
            raise Refused(503, f"there was no reply within {seconds:g} s. Ask for fewer tokens.")
        if one.replies is None:
            raise one.refused or Refused(503, "this endpoint is closed. Its episode is over.")
        return one.replies

    def taken(self, seconds: float, expected: Callable[[], int]) -> list[Pending]:
        """Returns the requests that wait, none after `seconds` without one. After the first, others are waited
        for: until there are as many as `expected`, or for `WINDOW`.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: self.waiting or self.is_closed, seconds):
                return []
            until = time.monotonic() + WINDOW
            while len(self.waiting) < expected() and (left := until - time.monotonic()) > 0 and not self.is_closed:
                self.changed.wait(left)
            found, self.waiting = self.waiting, []
            return found

    def answer(self, some: Sequence[Pending], sample: Callable[[list[Row]], list[Reply]]) -> None:
        """Samples the rows of some requests together and answers them; each is refused if that fails."""
        rows = [row for one in some for row in one.rows]
        try:
            replies = sample(rows)
            for one in some:
                one.replies, replies = replies[: len(one.rows)], replies[len(one.rows) :]
        except Refused as refused:
            for one in some:
                one.refused = refused
        except BaseException as error:
            for one in some:
                one.refused = Refused(500, f"sampling failed: {type(error).__name__}")
            raise
        finally:
            for one in some:
                one.done.set()

    def close(self) -> None:
        """Refuses all requests, those that wait too."""
        with self.changed:
            self.is_closed = True
            for one in self.waiting:
                one.done.set()
            self.waiting = []
            self.changed.notify_all()
