"""The chat routes of `assay serve`: any session may call, by the sampling parameters of its requests."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from assay.core.http import Refused
from assay.ops import random
from assay.rollouts.text import Tokenizer
from assay.tasks.adapters.agents.chat import Bounds, Chat
from assay.tasks.adapters.agents.requests import Asked
from assay.tasks.adapters.agents.sampling import MOST_ROWS, Reply, Row
from assay.tasks.adapters.agents.transcripts import Transcript

MOST_SESSIONS, MOST_KEPT = 1024, 1 << 24
"""Sessions that are remembered, and tokens of all of them; the ones that called longest ago are forgotten first."""
CALLS = 1 << 14
"""Most calls of one session."""


class OpenChat(Chat):
    """Answers whoever may reach the server. A request without a session is not recorded."""

    has_one_model: ClassVar[bool] = False

    def __init__(self, name: str, tokenizer: Tokenizer, bounds: Bounds, sample: Callable[[list[Row]], list[Reply]]):
        super().__init__(name, tokenizer, bounds)
        self.known: OrderedDict[str, Transcript] = OrderedDict()
        self.sample = sample
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        """Samples what arrives, for as long as the process lives; an error is that of the requests."""
        while not self.queue.is_closed:
            if some := self.queue.taken(1.0, lambda: MOST_ROWS):
                try:
                    self.queue.answer(some, self.sample)
                except Exception as error:  # the requests have it; the next ones may do better
                    print(f"assay: sampling failed: {type(error).__name__}: {error}", flush=True)

    def transcript(self, session: str) -> Transcript:
        """Returns the transcript of a session, a new one if it is not known."""
        if not session:
            return Transcript(self.tokenizer)
        talk = self.known.setdefault(session, Transcript(self.tokenizer))
        self.known.move_to_end(session)
        kept = sum(one.num_kept for one in self.known.values())
        while len(self.known) > 1 and (len(self.known) > MOST_SESSIONS or kept > MOST_KEPT):
            kept -= self.known.popitem(last=False)[1].num_kept
        return talk

    def recalled(self, session: str) -> Transcript:
        if session not in self.known:
            raise Refused(404, f"there is no session {session[:60]!a}. Use a key or the header of earlier requests.")
        return self.known[session]

    def row(self, session: str, asked: Asked, prompt: tuple[int, ...], place: tuple[int, int, int], most: int) -> Row:
        given = secrets.randbits(63) if asked.seed is None else asked.seed
        seed = int(random.hashed_after(np.asarray(given).astype(np.int64).view(np.uint64), place[2]))
        return Row(prompt, seed, most, asked.greedy, asked.narrowing, asked.stops, asked.alternatives or 0)
