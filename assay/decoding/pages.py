"""The bookkeeping of the cache: pages of shared prompts and of rows. No device code.

Tensors have one entry a row that is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from assay.decoding.kernels import Changed


@dataclass(eq=False)
class Prompt:
    """Tokens that rows share, their pages, how many rows still need them, and how many of these are in the cache;
    the last state, and the experts that its tokens chose.
    """

    tokens: list[int]
    users: int = 1
    readers: int = 0
    place: int = -1
    pages: list[int] = field(default_factory=list)
    state: Tensor | None = None
    chosen: Tensor | None = None


@dataclass(eq=False)
class CachedRow:
    """A text being written: a prompt, then its own tokens, of which the pages hold the first `read`.

    `own` are those that the host knows: the forced beginning, and tokens written and read in earlier turns. In a
    call, it writes the result number `result`; `time` counts its tokens, those from `begun` on are not in `own`, and
    up to `looked` no stop string was found. Host counts may run ahead of the device, which stops at a row's end.
    """

    prompt: Prompt
    own: list[int] = field(default_factory=list)
    read: int = 0
    is_kept: bool = False
    result: int = 0
    time: int = 0
    begun: int = 0
    looked: int = 0
    said: list[int] = field(default_factory=list)
    place: int = -1
    pages: list[int] = field(default_factory=list)
    length: int = 0

    def start(self, result: int, said: list[int]) -> None:
        """Starts a new result, of which `said` tokens exist already."""
        self.result, self.time, self.begun, self.looked, self.said = result, 0, 0, 0, said


def spots(prompts: Sequence[Prompt], longest: int, page: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns each token's (place among prompts right-padded to `longest`, time, page), and the last one of each
    prompt.
    """
    lengths = torch.tensor([len(prompt.tokens) for prompt in prompts])
    spot = (torch.arange(longest) < lengths.unsqueeze(1)).flatten().nonzero().squeeze(1)
    pages = torch.tensor([page for prompt in prompts for page in prompt.pages])
    first = torch.tensor([0, *(len(prompt.pages) for prompt in prompts)]).cumsum(0)
    time = spot % longest
    return spot, time, pages[first[spot // longest] + time // page], lengths.cumsum(0) - 1


class Way(NamedTuple):
    """Sampling parameters and stop conditions of a call."""

    eos: int
    is_greedy: bool = False
    narrowing: Changed | None = None

    @property
    def change(self) -> Changed | None:
        """The sampling parameters, if they change the distribution."""
        return self.narrowing if self.narrowing is not None and self.narrowing.changes else None


class Look(NamedTuple):
    """The inputs of a step for N rows: their last token, the page and offset for its keys and values, the number of
    own tokens visible then, its position in the text, and the uniform number for the next token.
    """

    token: Tensor
    page: Tensor
    offset: Tensor
    seen: Tensor
    position: Tensor
    uniform: Tensor | None = None


class Ledger:
    """Free pages and places; prompts in the cache, and idle rows whose pages are kept."""

    def __init__(self, rows: int, pages: int, page: int) -> None:
        self.page, self.num_pages = page, pages
        self.free = list(range(pages - 1, 0, -1))  # page 0 is for padding
        # Dictionaries as ordered sets: the longest idle is evicted first, the same in every run.
        self.places, self.prompt_places = list(range(rows - 1, -1, -1)), list(range(rows - 1, -1, -1))
        self.resting: dict[CachedRow, None] = {}
        self.prompts: dict[Prompt, None] = {}

    def pages_for(self, tokens: int) -> int:
        """Returns how many pages these tokens need."""
        return -(-tokens // self.page)

    def take(self, num: int) -> list[int]:
        """Returns `num` free pages."""
        return [self.free.pop() for _ in range(num)]

    def leave(self, row: CachedRow) -> None:
        """Frees the row's pages and place; its prompt's too if it was the last row."""
        if row.place >= 0:
            self.free += row.pages
            self.places.append(row.place)
            self.resting.pop(row, None)
            row.prompt.readers -= 1
        row.pages, row.place, row.length, row.read = [], -1, 0, 0
        # A prompt is shared: its pages go with the last row that may need them.
        row.prompt.users -= 1
        if not row.prompt.users and row.prompt.place >= 0:
            self.drop(row.prompt)

    def drop(self, prompt: Prompt) -> None:
        """Frees the prompt's pages; it is read again when a row needs it later."""
        self.free += prompt.pages
        self.prompt_places.append(prompt.place)
        prompt.place, prompt.pages, prompt.state = -1, [], None
        self.prompts.pop(prompt)

    def part(self, row: CachedRow) -> None:
        """Frees the row's pages; all its tokens become a prompt of its own for when it resumes."""
        # Pages cannot be taken from the middle of a text: all of it is read again, as one prompt.
        self.leave(row)
        row.prompt, row.own = Prompt(row.prompt.tokens + row.own), []

    def rest(self, row: CachedRow) -> None:
        """Keeps an idle row's text in the cache; its last token has not been read yet, and pages beyond are freed."""
        row.read = row.length = len(row.own) - 1  # a token's keys are computed when the next one is drawn
        held = self.pages_for(row.read)
        self.free += row.pages[held:]
        row.pages = row.pages[:held]
        self.resting[row] = None

    def cost(self, row: CachedRow, is_new: bool) -> int:
        """Returns the pages that a row needs to join: for known and first new tokens, and for its prompt if new."""
        own = self.pages_for(len(row.own)) + 1 - len(row.pages)  # one more: a row must be able to write
        return own + (self.pages_for(len(row.prompt.tokens)) if is_new else 0)

    def clear(self) -> None:
        """Frees the whole cache; requires that no row is decoding."""
        for row in list(self.resting):
            self.part(row)
        for prompt in list(self.prompts):
            self.drop(prompt)

    def evict(self, but: CachedRow) -> bool:
        """Frees the pages of an idle row other than this one, or of an unused prompt; returns False if it cannot."""
        # Idle rows first: they are read again only if they resume, a prompt for every row that joins it.
        row = next((row for row in self.resting if row is not but), None)
        if row is not None:
            self.part(row)
            return True
        idle = next((some for some in self.prompts if not some.readers and some is not but.prompt), None)
        if idle is not None:
            self.drop(idle)
        return idle is not None

    def joining(self, waiting: list[CachedRow], active: list[CachedRow]) -> tuple[list[CachedRow], list[Prompt]]:
        """Returns the rows that join while there are places and pages, and the prompts that are new with them."""
        rows: list[CachedRow] = []
        fresh: dict[Prompt, None] = {}
        # Rows that just began need their second page soon: without a reserve they would have to wait again at once.
        promised = sum(len(row.pages) < 2 for row in active)
        while waiting:
            row = waiting[-1]
            is_new = row.prompt.place < 0
            cost = self.cost(row, is_new)

            def fits(row: CachedRow = row, is_new: bool = is_new, need: int = promised + cost) -> bool:
                has_place = row.place >= 0 or len(self.places) > 0
                return has_place and (not is_new or len(self.prompt_places) > 0) and len(self.free) >= need

            while not fits() and self.evict(row):
                pass
            if not fits():
                break
            # It decodes again, so that it cannot be evicted.
            self.resting.pop(row, None)
            if is_new:
                row.prompt.place, fresh[row.prompt] = self.prompt_places.pop(), None
                self.prompts[row.prompt] = None
            if row.place < 0:
                row.place = self.places.pop()
                row.prompt.readers += 1
            promised += cost
            rows.append(waiting.pop())
        return rows, list(fresh)
