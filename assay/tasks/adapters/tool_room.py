"""How conversations with tools fit into what a model reads: limits that were not chosen are lowered, and said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from assay.core.errors import AssayError, DataWarning, warn
from assay.models.pretrained.transformers import PretrainedTokenizer
from assay.rollouts.text import TOOL_RESPONSE, ToolResults
from assay.tasks.language.tools import WRAPPED, ToolUse

FEW, LEAST = 64, 16
"""Tokens and bytes at which turns with calls are given up before anything else, and below which nothing is lowered."""
OPTIONS = {"tool_calls": "calls", "max_tokens": "tokens", "tool_bytes": "size"}
"""Options of the limits, and their names in a Room."""


class Room(NamedTuple):
    """The limits of a conversation with tools: turns with calls, tokens of an utterance, bytes of its results."""

    calls: int
    tokens: int
    size: int


@dataclass(frozen=True)
class Talk:
    """A conversation with tools in the tokens of a model: its prompt has at most `prompt` tokens, a turn with results
    `gap` more than theirs or what the template writes, an utterance at least `shortest`. `is_limited` says that the
    tokens of an utterance were chosen.
    """

    partner: ToolUse
    tokenizer: PretrainedTokenizer
    prompt: int
    gap: int
    shortest: int
    is_limited: bool

    @property
    def free(self) -> frozenset[str]:
        """Returns the options that were not chosen."""
        return self.partner.free | (set() if self.is_limited else {"max_tokens"})

    def fitted(self, usual: Room) -> tuple[ToolUse, tuple[int, int, int, int]]:
        """Returns the tools and the limits (prompt, turns, utterance, reply) of the largest conversation that the model
        can read; a warning says which ones are below the usual. AssayError if it can read none.
        """
        reads = self.tokenizer.most_tokens
        room = next((one for one in smaller(usual, self.free, self.shortest) if self.needs(one) <= reads), None)
        if room is None:
            raise self.too_long(usual)
        if room != usual:
            told = [f"{option(name)} {getattr(room, place)}" for name, place in OPTIONS.items()]
            lowered = [words for words, one, other in zip(told, room, usual, strict=True) if one != other]
            what = f"model '{self.tokenizer.path}' reads {reads:,} tokens, so that conversations with tools are shorter"
            warn(f"{what}: {', '.join(lowered)}. Each can be set", DataWarning)
        return replace(self.partner, most_bytes=room.size), (self.prompt, room.calls + 1, room.tokens, self.reply(room))

    def needs(self, room: Room) -> int:
        """Returns the tokens of the longest conversation."""
        return self.prompt + (room.calls + 1) * (room.tokens + self.reply(room))

    def reply(self, room: Room) -> int:
        """Returns the tokens of the longest reply: no token is shorter than a byte."""
        partner = replace(self.partner, most_bytes=room.size)
        gap = max(self.gap, room_for_results(self.tokenizer, partner.most_calls) + 2)
        return room.size + len(TOOL_RESPONSE) + gap

    def too_long(self, usual: Room) -> AssayError:
        """Returns the error of a conversation that does not fit however little is lowered."""
        *_, least = smaller(usual, self.free, self.shortest)
        chosen = [option(name) for name in OPTIONS if name not in self.free]
        what = f"model '{self.tokenizer.path}' reads {self.tokenizer.most_tokens:,} tokens, and the shortest "
        what += f"conversation with tools takes {self.needs(least):,}, {self.prompt:,} of them a prompt with its tools"
        fix = f"Lower {' or '.join(chosen)}, or shorten" if chosen else "Shorten"
        return AssayError(f"{what}. {fix} the descriptions of tools or the prompts.")


def smaller(room: Room, free: frozenset[str], shortest: int) -> Iterator[Room]:
    """Yields ever smaller limits, the given ones first: the larger of utterance and results is halved down to FEW, then
    turns with calls are given up one by one, then both are halved down to LEAST. Only what is `free` changes, and no
    utterance is shorter than `shortest`.
    """
    yield room
    for few in (FEW, LEAST):
        floor = max(few, shortest)
        while True:
            tokens = room.tokens if "max_tokens" in free and room.tokens > floor else 0
            size = room.size if "tool_bytes" in free and room.size > few else 0
            if not tokens and not size:
                break
            larger = {"size": max(few, size // 2)} if size >= tokens else {"tokens": max(floor, tokens // 2)}
            yield (room := room._replace(**larger))
        while "tool_calls" in free and room.calls > 1:
            yield (room := room._replace(calls=room.calls - 1))


def option(name: str) -> str:
    """Returns a limit as its option."""
    return f"--{name.replace('_', '-')}"


def room_for_results(tokenizer: PretrainedTokenizer, most_calls: int) -> int:
    """Returns the tokens that the template writes around the most results, beyond those that the limit of a reply has
    for them; AssayError if it rewrites earlier turns.
    """
    if tokenizer.tool_turns(1) is None:
        return 0
    one, two = (len(tokenizer.encode(ToolResults([""] * num))) for num in (1, 2))
    return max(one, one + (most_calls - 1) * (two - one - WRAPPED))
