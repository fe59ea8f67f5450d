"""What one session asked and what was sampled: a tree of calls whose branches are the rows that are trained.

A call whose messages begin with those of an earlier one and its reply continues that call's tokens: a reply that was
sampled is read as it was sampled. Any other call begins a new sequence.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.rollouts.text import Tokenizer
from assay.tasks.adapters.agents.rendering import continuing, opening
from assay.tasks.adapters.agents.requests import Asked, Said


@dataclass(frozen=True, eq=False)
class ModelCall:
    """One reply: the call before it that it continues, the tokens since then (`read`), and those that were sampled with
    their log-probabilities, under the model itself too if they were drawn from another distribution.

    `messages` are those of the conversation with the reply; `version` is that of the weights.
    """

    number: int
    parent: ModelCall | None
    read: tuple[int, ...]
    tokens: tuple[int, ...]
    logp: tuple[float, ...]
    logp_model: tuple[float, ...] | None
    versions: tuple[int, ...] | None
    version: str
    has_ended: bool
    messages: tuple[Said, ...]
    tools: str
    text: str

    @property
    def path(self) -> list[ModelCall]:
        """The calls from the first to this one."""
        return [*([] if self.parent is None else self.parent.path), self]

    @property
    def prompt(self) -> list[int]:
        """The tokens before the reply."""
        return [*([] if self.parent is None else self.parent.sequence), *self.read]

    @property
    def sequence(self) -> list[int]:
        """All tokens up to the end of the reply."""
        return [*self.prompt, *self.tokens]


@dataclass(frozen=True)
class Piece:
    """Tokens of a row: what was read, then what was sampled; `is_own` if this row is the one that trains them."""

    call: ModelCall
    is_own: bool

    @property
    def mask(self) -> list[bool]:
        """Whether each token is trained in this row."""
        return [*[False] * len(self.call.read), *[self.is_own] * len(self.call.tokens)]


@dataclass(eq=False)
class Transcript:
    """The calls of one session, in the order of their ends. `notes` are reasons why requests were refused; `num_kept`
    counts the tokens that the calls hold, `model` is the name that the first one gave.
    """

    tokenizer: Tokenizer
    calls: list[ModelCall] = field(default_factory=list)
    places: dict[int, dict[int, Callable[[], bool]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    num_asked: int = 0
    num_kept: int = 0
    model: str | None = None

    def add(self, call: ModelCall) -> None:
        """Records a call."""
        self.calls.append(call)
        self.num_kept += len(call.read) + len(call.tokens)

    def begun(self, asked: Asked) -> tuple[ModelCall | None, list[int]]:
        """Returns the call that a request continues, None for a new sequence, and the tokens to read since then."""
        eos = self.tokenizer.vocabulary.eos
        for call in sorted(self.calls, key=lambda one: (len(one.messages), one.number), reverse=True):
            known = len(call.messages)
            is_older = 0 < known < len(asked.messages) and call.tools == asked.tools
            if is_older and call.messages == asked.messages[:known]:
                tail = continuing(self.tokenizer, asked, known, call.tokens[-1:] == (eos,))
                if tail is not None:
                    return call, tail
        return None, opening(self.tokenizer, asked)

    def place(self, prompt: Sequence[int], has_left: Callable[[], bool]) -> tuple[int, int]:
        """Returns the coordinates of a request's random numbers: a hash of its prompt, and how often the same prompt
        was asked before. They do not depend on the order in which different requests arrive. A client that left
        before it had its reply does not count: one that asks again gets the same.
        """
        name = name_of(prompt)
        known = self.places.setdefault(name, {})
        for place in [place for place, left in known.items() if left()]:
            del known[place]
        first = next(place for place in itertools.count() if place not in known)
        known[first] = has_left
        return name, first

    def keep(self, place: tuple[int, int], has_left: Callable[[], bool]) -> bool:
        """Keeps a place for ever, since its reply is recorded; returns False if the client has left: another request
        may have the place by now.
        """
        known = self.places[place[0]]
        is_there = known.get(place[1]) is has_left and not has_left()
        if is_there:
            known[place[1]] = lambda: False
        return is_there

    def same(self, prompt: Sequence[int], choices: int) -> list[ModelCall]:
        """Returns the latest replies to this prompt, for a client that did not get them; none if there are fewer than
        it asks for.
        """
        found = [call for call in self.calls if call.prompt == list(prompt)]
        return found[-choices:] if len(found) >= choices else []

    def rows(self) -> list[list[Piece]]:
        """Returns the branches in the order of their last calls. A call that several share is trained in the first."""
        parents = {id(call.parent) for call in self.calls}
        leaves = [call for call in self.calls if id(call) not in parents]
        found, done = list[list[Piece]](), set[int]()
        for leaf in leaves:
            found.append([Piece(call, id(call) not in done) for call in leaf.path])
            done |= {id(call) for call in leaf.path}
        return found

    def told(self) -> dict[str, Any]:
        """Returns the transcript as JSON: every call, and the sequences with a mask of what was sampled."""
        names = {id(call): place for place, call in enumerate(self.calls)}
        calls = [
            {
                "call": place,
                "continues": None if call.parent is None else names.get(id(call.parent)),
                "prompt_token_ids": call.prompt,
                "token_ids": list(call.tokens),
                "logprobs": list(call.logp),
                "weight_version": call.version,
                "finish_reason": "stop" if call.has_ended else "length",
            }
            for place, call in enumerate(self.calls)
        ]
        rows = [[token for piece in row for token in (*piece.call.read, *piece.call.tokens)] for row in self.rows()]
        masks = [[own for piece in row for own in piece.mask] for row in self.rows()]
        both = zip(rows, masks, strict=True)
        return {"calls": calls, "sequences": [{"token_ids": ids, "is_sampled": mask} for ids, mask in both]}


def name_of(prompt: Sequence[int]) -> int:
    """Returns 64 bits of BLAKE2b over the tokens of a prompt."""
    digest = hashlib.blake2b(np.asarray(prompt, dtype=np.int64).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
