"""Who holds what of the cache: prompts that rows share, and the rows. Nothing here touches a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from assay.sampling.kernels import Changed


@dataclass(eq=False)
class Prompt:
    """Tokens that rows share, their pages, how many rows still need them, and how many of these are in the cache."""

    tokens: list[int]
    users: int = 1
    readers: int = 0
    place: int = -1
    pages: list[int] = field(default_factory=list)
    state: Tensor | None = None


@dataclass(eq=False)
class Row:
    """A text that is being written: a prompt, then tokens of its own, of which the pages hold the first `read`.

    `own` are those that the host knows: what it was forced to begin with, what it wrote and heard in earlier turns.
    In a call, it writes the result number `result`; `time` counts the tokens of it, from `begun` on they are not in
    `own`, up to `looked` no stop string was found. Host counts may run ahead of the device, which stops at a row's end.
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
        """A new result; of its text `said` was there before."""
        self.result, self.time, self.begun, self.looked, self.said = result, 0, 0, 0, said


class Way(NamedTuple):
    """How a call draws tokens and where its results end."""

    eos: int
    is_greedy: bool = False
    narrowing: Changed | None = None

    @property
    def change(self) -> Changed | None:
        """The narrowing, if it changes the distribution."""
        return self.narrowing if self.narrowing is not None and self.narrowing.changes else None


class Look(NamedTuple):
    """What a step needs of N rows: their last token, the page and the offset in it where its keys and values go, how
    many own tokens they see then, its position in the text, and the uniform number for the next token.
    """

    token: Tensor
    page: Tensor
    offset: Tensor
    seen: Tensor
    position: Tensor
    uniform: Tensor | None = None


class Ledger:
    """Free pages and places; prompts in the cache, and rows that rest there without decoding."""

    def __init__(self, rows: int, pages: int, page: int) -> None:
        self.page, self.num_pages = page, pages
        self.free = list(range(pages - 1, 0, -1))  # page 0 is where padding writes
        # Dictionaries as ordered sets: what rests longest is evicted first, the same in every run.
        self.places, self.prompt_places = list(range(rows - 1, -1, -1)), list(range(rows - 1, -1, -1))
        self.resting: dict[Row, None] = {}
        self.prompts: dict[Prompt, None] = {}

    def pages_for(self, tokens: int) -> int:
        """How many pages hold these."""
        return -(-tokens // self.page)

    def take(self, num: int) -> list[int]:
        """Free pages."""
        return [self.free.pop() for _ in range(num)]

    def leave(self, row: Row) -> None:
        """Gives back pages and place; the prompt's too when its last row has gone."""
        if row.place >= 0:
            self.free += row.pages
            self.places.append(row.place)
            self.resting.pop(row, None)
            row.prompt.readers -= 1
        row.pages, row.place, row.length, row.read = [], -1, 0, 0
        row.prompt.users -= 1
        if not row.prompt.users and row.prompt.place >= 0:
            self.drop(row.prompt)

    def drop(self, prompt: Prompt) -> None:
        """The prompt gives back its pages; who needs it later has it read again."""
        self.free += prompt.pages
        self.prompt_places.append(prompt.place)
        prompt.place, prompt.pages, prompt.state = -1, [], None
        self.prompts.pop(prompt)

    def part(self, row: Row) -> None:
        """The row gives back what it holds; all that it knows becomes a prompt of its own for when it goes on."""
        self.leave(row)
        row.prompt, row.own = Prompt(row.prompt.tokens + row.own), []

    def rest(self, row: Row) -> None:
        """The row's text stays in the cache; its last token has not been read yet, and pages beyond are free."""
        row.read = row.length = len(row.own) - 1  # a token's keys are computed when the next one is drawn
        held = self.pages_for(row.read)
        self.free += row.pages[held:]
        row.pages = row.pages[:held]
        self.resting[row] = None

    def cost(self, row: Row, is_new: bool) -> int:
        """Pages that a row needs to join: for what it knows and writes first, and for its prompt where that is new."""
        own = self.pages_for(len(row.own)) + 1 - len(row.pages)  # one more: a row must be able to write
        return own + (self.pages_for(len(row.prompt.tokens)) if is_new else 0)

    def clear(self) -> None:
        """Nobody decodes: all that is in the cache goes."""
        for row in list(self.resting):
            self.part(row)
        for prompt in list(self.prompts):
            self.drop(prompt)

    def evict(self, but: Row) -> bool:
        """Another row than this that rests loses its pages, or a prompt that nobody reads now; false where there is
        none.
        """
        # Resting rows first: they need reading again only if they go on, a prompt for every row that joins it.
        row = next((row for row in self.resting if row is not but), None)
        if row is not None:
            self.part(row)
            return True
        idle = next((some for some in self.prompts if not some.readers and some is not but.prompt), None)
        if idle is not None:
            self.drop(idle)
        return idle is not None

    def joining(self, waiting: list[Row], active: list[Row]) -> tuple[list[Row], list[Prompt]]:
        """The rows that come in while there are places and pages, and the prompts that are new with them."""
        rows: list[Row] = []
        fresh: dict[Prompt, None] = {}
        # Rows that just began take their second page soon: given away now, they would have to wait again at once.
        promised = sum(len(row.pages) < 2 for row in active)
        while waiting:
            row = waiting[-1]
            is_new = row.prompt.place < 0
            cost = self.cost(row, is_new)

            def fits(row: Row = row, is_new: bool = is_new, need: int = promised + cost) -> bool:
                has_place = row.place >= 0 or len(self.places) > 0
                return has_place and (not is_new or len(self.prompt_places) > 0) and len(self.free) >= need

            while not fits() and self.evict(row):
                pass
            if not fits():
                break
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
