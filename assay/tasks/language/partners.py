"""Partners of a conversation whose replies are a pure function of what was said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from assay.core.errors import AssayError
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.rollouts import text
from assay.tasks.language.items import Item, Items


@dataclass(frozen=True)
class Reply:
    """A reply: its text, the reward of the utterance itself, and the outcome if the episode is over.

    The text of a reply with an outcome is for display only: the policy does not read it. `cost` is what a session paid
    for the reply, in any unit: a metric, never a reward.
    """

    text: str
    outcome: Outcome | None = None
    reward: float = 0.0
    cost: float = 0.0


class Partner(Protocol):
    """The partner of a conversation: prompts by number, and replies.

    Laws: `item` and `reply` are pure functions; no content is in both splits; `reply` never raises because of an
    utterance. The demonstration of an item has one utterance per line and ends with the outcome 1. A partner may have
    an `introduction`: the instructions for a pretrained model, which does not know the rules.
    """

    def item(self, ordinal: int, split: int) -> Item:
        """Returns item `ordinal` of split 0 (training) or 1 (held out)."""

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns the reply to the last of the utterances so far."""


@runtime_checkable
class MeasuredPartner(Partner, Protocol):
    """A partner that knows how much of a task a conversation has completed."""

    def progress(self, item: Item, said: Sequence[str]) -> float:
        """Returns the share of subtasks that were completed at some time, from 0 to 1."""


@runtime_checkable
class OverItems(Protocol):
    """A partner, with or without sessions, whose prompts are those of other items."""

    @property
    def items(self) -> Items:
        """Returns the items."""


@runtime_checkable
class Sized(Protocol):
    """A partner that knows how long its texts are: without that, words of a task's own list bound them."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Returns the most bytes of a prompt and of a reply."""


def checked_reply(task: str, partner: Partner, item: Item, said: Sequence[str]) -> Reply:
    """Returns the partner's reply; AssayError if it raises, or returns something that is not a reply."""
    where = f"task {task}, after {text.escaped(said[-1], 60)!r}: {type(partner).__name__}.reply"
    try:
        reply = partner.reply(item, said)
    except Exception as error:
        raise AssayError(f"{where} raised {error!r}. It must return a Reply to every utterance") from error
    return as_reply(reply, where)


def as_reply(reply: Any, where: str) -> Reply:
    """Returns a reply; AssayError, which begins with `where`, for anything else."""
    if not isinstance(reply, Reply) or not isinstance(reply.outcome, Score | PolicyFault | InfraFault | None):
        raise AssayError(f"{where} returned {reply!r}. It must return a Reply with an outcome or None")
    worth = 0.0 if reply.outcome is None or isinstance(reply.outcome, InfraFault) else reply.outcome.value
    if not math.isfinite(worth + reply.reward):
        raise AssayError(f"{where} returned the values {worth} and {reply.reward}. They must be finite")
    return reply
