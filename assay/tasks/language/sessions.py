"""Partners with state: a session for each rollout, whose replies are recorded and never asked for again."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from assay.core.errors import AssayError
from assay.core.record import Outcome
from assay.tasks.language.items import Item
from assay.tasks.language.partners import Reply


class Session(Protocol):
    """The partner of one conversation, from its opening to its end. Its functions may be coroutines."""

    def reply(self, utterance: str) -> Reply | Awaitable[Reply]:
        """Returns the reply to an utterance. An exception is a fault of the infrastructure."""

    def reward(self) -> Outcome | Awaitable[Outcome]:
        """Returns the outcome of a conversation that ended without one: no turns were left."""

    def close(self) -> Awaitable[None] | None:
        """Frees what the session holds. Called once, also after a fault, and then possibly beside a call that hangs."""


@runtime_checkable
class Sessions(Protocol):
    """A partner that opens a session for each rollout.

    Laws: `item` is a pure function; sessions of two rows do not see each other; the order of rows does not matter; if
    `is_repeatable`, a session of the same item and seed gives the same replies to the same utterances.
    """

    @property
    def is_repeatable(self) -> bool:
        """Returns whether a session can be played again from its item, its seed and what was said."""

    def item(self, ordinal: int, split: int) -> Item:
        """Returns item `ordinal` of split 0 (training) or 1 (held out)."""

    def open(self, item: Item, seed: int) -> Session | Awaitable[Session]:
        """Opens a session. An exception is a fault of the infrastructure."""


PATIENCE = 1.0
"""Seconds for which the slowest sessions are waited for, of those that cannot be repeated."""


@dataclass(frozen=True)
class Waiting:
    """How long replies may take, in seconds, and how many are asked for at once.

    A reply that takes longer than `reply`, or an episode whose replies (and opening) take longer than `episode`
    together, is a fault of the infrastructure: that row leaves training. After `patience` the rows whose replies are
    there go on without the others; which rows then decode together depends on the clock, and so do the last bits of
    what they write. So None waits for all, unless sessions cannot be repeated anyway: then it is `PATIENCE`.
    """

    reply: float = 60.0
    episode: float = 600.0
    concurrency: int = 256
    patience: float | None = None
    not_a_part: ClassVar[str] = "limits of a task"

    def __post_init__(self) -> None:
        patience = math.inf if self.patience is None else self.patience
        for name, seconds in {"reply": self.reply, "episode": self.episode, "patience": patience}.items():
            if not seconds > 0:
                raise AssayError(f"{name} is {seconds:g} seconds. Use a positive number.")
        if self.concurrency < 1:
            raise AssayError(f"concurrency is {self.concurrency}. Use at least 1.")

    def patience_with(self, sessions: Sessions) -> float:
        """Returns the seconds for which all rows are waited for."""
        if self.patience is not None:
            return self.patience
        return math.inf if sessions.is_repeatable else PATIENCE


def replay_note(partner: object, waiting: Waiting) -> str:
    """Returns why conversations cannot be replayed bit by bit; "" if they can, as with a pure partner."""
    if not isinstance(partner, Sessions):
        return ""
    if not partner.is_repeatable:
        return "Its sessions cannot be repeated: a resumed or repeated run hears other replies."
    if waiting.patience is not None:
        return (
            f"Rows go on after a patience of {waiting.patience:g} s: the clock decides which decode together."
        )
    return ""
