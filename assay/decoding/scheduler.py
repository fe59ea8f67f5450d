"""The scheduler: rows join when pages are free, decode together, and leave when they end. Axes: B results, N tokens.

A row is a prompt's sample. Rows of one prompt share its pages; each has pages of its own for its new tokens, taken as
it grows and freed when it ends. If pages run out, idle rows lose theirs, then the youngest row does and joins again
later, with its tokens as part of its prompt. The token at time t of a result comes from that result's t-th uniform
number alone.

On a GPU a step is one CUDA graph for each batch size; every `interval` steps the host checks which rows have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.decoding import kernels
from assay.decoding.graphs import SIZES, Graphs, clusters
from assay.decoding.kernels import Seen
from assay.decoding.layers import CachePlaces, Stack
from assay.decoding.pages import CachedRow, Ledger, Look, Prompt, Way, spots
from assay.decoding.results import Results, Routes, Versions, first_stop
from assay.ops.decoded import Ended, Stop, Written

PREFILL = 32_768
"""Tokens of prompts that go through the network at once."""
EXTEND = 4096
"""Tokens after prompts that go through the network at once."""
Rows = list[CachedRow]


class Sampler:
    """Decodes with a stack's weights. At most `rows` decode at once; `pages` of `page` tokens hold keys and values."""

    def __init__(
        self, stack: Stack, *, rows: int, pages: int, longest: int, page: int = 64, interval: int = 16
    ) -> None:
        self.stack, self.page, self.interval = stack, page, interval
        self.device, self.dtype = stack.weight.device, stack.weight.dtype
        self.members = max(1, 16 // (stack.num_heads // stack.num_key_heads))
        self.shape = (2, stack.num_layers, pages, page, stack.num_key_heads, stack.head_size)
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.address = 0
        self.ledger = Ledger(rows, pages, page)
        self.num_rows, self.longest, self.most = rows, longest, -(-longest // page) + 1

        whole = partial(torch.zeros, dtype=torch.int64, device=self.device)
        with torch.no_grad():
            self.angles = stack.angles(torch.arange(self.most * page, device=self.device))
        # The last place of each is for padding, which reads and writes there.
        self.table, self.prompt_table = whole(rows + 1, self.most), whole(rows + 1, self.most)
        self.length, self.prompt_length = whole(rows + 1), whole(rows + 1)
        self.prompt_of = torch.full((rows + 1,), rows, dtype=torch.int64, device=self.device)
        self.last, self.time, self.result = whole(rows + 1), whole(rows + 1), whole(rows + 1)
        self.done = torch.ones(rows + 1, dtype=torch.bool, device=self.device)
        self.graphs = Graphs(self.step, self.device, rows)
        self.results, self.way = Results.empty(0, 0, self.dtype, self.device), Way(-1)
        self.routes: Routes | None = None

    # ------------------------------------------------------------------------------------------------ memory
    def hold(self) -> None:
        """Allocates the pages, one buffer for all layers. Graphs know its address and are dropped if it changed."""
        if self.keys:
            return
        buffer = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        if buffer.data_ptr() != self.address:
            self.graphs.clear()
            self.address = buffer.data_ptr()
        self.keys, self.values = (list(some.unbind()) for some in buffer.unbind())

    def release(self) -> None:
        """Frees the pages' memory until the next call needs it; idle rows are read again when they resume."""
        self.ledger.clear()
        self.keys, self.values = [], []

    def index(self, numbers: Sequence[Any]) -> Tensor:
        """Copies numbers from the host to the device."""
        return torch.tensor(numbers, dtype=torch.int64, device=self.device)

    # ------------------------------------------------------------------------------------------------ one call
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        repeats: Sequence[int],
        uniform_BN: Tensor | None,
        limit_B: Tensor,
        way: Way,
        *,
        forced: Sequence[Sequence[int]] = (),
        stop: Stop | None = None,
        said: Sequence[Sequence[int]] = (),
        newest: Callable[[], int] | None = None,
    ) -> Written:
        """Returns results in the order of prompts and their repeats.

        Without uniform numbers the likeliest token is taken. A result ends with the end token, a stop string or at its
        limit. Tokens that a row is `forced` to begin with are read after its shared prompt and are in no result; `said`
        counts for stop strings. Before some tokens `newest` may change the weights, whose version is recorded.
        """
        shared = [Prompt(list(tokens), many) for tokens, many in zip(prompts, repeats, strict=True)]
        which = [prompt for prompt, many in zip(shared, repeats, strict=True) for _ in range(many)]
        rows = [CachedRow(prompt, list(forced[place]) if forced else []) for place, prompt in enumerate(which)]
        routes = Routes.of(rows, int(limit_B.max()), self.stack.num_choices, self.device)
        written = self.write(rows, uniform_BN, limit_B, way, stop, said, newest, routes=routes)
        return written if routes is None else written._replace(experts=routes.written())

    @torch.no_grad()
    def write(
        self,
        rows: Sequence[CachedRow],
        uniform_BN: Tensor | None,
        limit_B: Tensor,
        way: Way,
        stop: Stop | None = None,
        said: Sequence[Sequence[int]] = (),
        newest: Callable[[], int] | None = None,
        ended: Ended | None = None,
        routes: Routes | None = None,
    ) -> Written:
        """Returns a result of each row; `ended` hears of those of kept rows as soon as the host knows that they end."""
        num, most, self.routes = len(limit_B), int(limit_B.max()), routes
        self.hold()
        if not self.results.holds(num, most):  # graphs know its addresses
            self.results = self.results.larger(num, most)
            self.graphs.clear()
        self.way = way._replace(is_greedy=uniform_BN is None)
        self.results.begin(uniform_BN, limit_B)
        for result, row in enumerate(rows):
            row.start(result, list(said[result]) if said else [])
        # A stack of rows: the first is popped first, and a row that has to wait again comes back before the others.
        waiting, active, cut = list(rows)[::-1], list[CachedRow](), dict[int, int]()
        versions = None if newest is None else Versions(newest, num, most)
        try:
            while waiting or active:
                active = self.retire(active, stop, cut, ended)
                if versions is not None:
                    versions.turn((*waiting, *active))
                self.admit(waiting, active)
                if active:
                    # The host reads `done` every `interval` steps only: each read waits for the device.
                    steps = min(self.interval, max(1, most - min(row.time for row in active)))
                    self.make_room(active, waiting, steps)
                    self.steps(active, steps)
        except AssayError:
            for row in (row for row in (*active, *waiting) if not row.is_kept):
                self.ledger.leave(row)
            raise
        written = self.results.written(num, most, cut, self.way)
        return written if versions is None else written._replace(version=versions.known)

    # ------------------------------------------------------------------------------------------------ active rows
    def retire(self, active: Rows, stop: Stop | None, cut: dict[int, int], ended: Ended | None) -> Rows:
        """Returns the rows that continue; the others free their pages, or stay idle with them."""
        if not active:
            return active
        place = self.index([row.place for row in active])
        if stop is not None:
            self.heed(active, place, stop, cut)
        over = [row for row, done in zip(active, self.done[place].tolist(), strict=True) if done]
        stays = [row for row in over if row.is_kept]
        for row, wrote in zip(stays, self.said_by(stays, cut), strict=True):
            row.own += wrote
            if ended is not None:  # of a row that had to wait, the beginning is in its prompt
                ended(row.result, (row.prompt.tokens + row.own)[-len(wrote) - row.begun :])
            self.ledger.rest(row)
        for row in (row for row in over if not row.is_kept):
            self.ledger.leave(row)
        gone = set(over)
        return [row for row in active if row not in gone]

    def said_by(self, rows: list[CachedRow], cut: dict[int, int]) -> list[list[int]]:
        """Returns tokens that rows wrote and the host has not read yet."""
        if not rows:
            return []
        many = self.time[self.index([row.place for row in rows])].tolist()
        tokens = self.results.tokens[self.index([row.result for row in rows]), : max(many)].tolist()
        return [own[row.begun : cut.get(row.result, num)] for row, own, num in zip(rows, tokens, many, strict=True)]

    def heed(self, active: list[CachedRow], place: Tensor, stop: Stop, cut: dict[int, int]) -> None:
        """Ends rows whose new tokens complete a stop string."""
        since = [max(0, row.looked - stop.reach) for row in active]  # a string may have begun before the last check
        many = self.time[place].tolist()
        tokens = self.results.tokens_since(self.result[place], since, many)
        for row, own, first, num in zip(active, tokens, since, many, strict=True):
            found = first_stop(row, own, first, num, stop)
            if found is not None:
                cut[row.result] = found
                self.done[row.place] = True

    def admit(self, waiting: list[CachedRow], active: list[CachedRow]) -> None:
        """Admits rows while there are places, and pages for their prompts and first tokens."""
        joining, fresh = self.ledger.joining(waiting, active)
        if waiting and not joining and not active:
            raise AssayError("the cache has too few pages for one prompt. Give the sampler more pages")
        self.prefill(fresh)
        if joining:
            self.begin(joining)
            active += joining

    def make_room(self, active: list[CachedRow], waiting: list[CachedRow], steps: int) -> None:
        """Takes pages for the next steps; if none are left, idle rows lose theirs, then the youngest rows wait."""
        ledger, given = self.ledger, list[tuple[CachedRow, int]]()
        for place in range(len(active)):
            if place >= len(active):
                break  # the last row waits again
            row = active[place]
            missing = ledger.pages_for(row.length + steps) - len(row.pages)
            while missing > len(ledger.free) and place < len(active):
                if ledger.evict(row):
                    continue
                if len(active) == 1:
                    raise AssayError("the cache has too few pages for one row. Give the sampler more pages")
                self.put_back(active.pop(), waiting)
            if missing > 0 and place < len(active):
                given.append((row, len(row.pages)))
                row.pages += ledger.take(missing)
        self.tell(given)

    def tell(self, given: list[tuple[CachedRow, int]]) -> None:
        """Writes the rows' new pages, from the index `since` on, into the page table; all at once."""
        new = [(row.place, held, page) for row, since in given for held, page in enumerate(row.pages[since:], since)]
        if new:
            place, held, page = self.index(new).unbind(1)
            self.table[place, held] = page

    def put_back(self, row: CachedRow, waiting: list[CachedRow]) -> None:
        """Frees the row's pages; when it joins again, its tokens are part of a prompt of its own."""
        row.own += self.results.tokens[row.result, row.begun : row.time].tolist()
        row.begun = row.time
        self.done[row.place] = True  # or a graph would still write into pages that are another row's now
        self.ledger.part(row)
        waiting.append(row)

    # ------------------------------------------------------------------------------------------------ prompts
    def prefill(self, prompts: list[Prompt]) -> None:
        """Computes keys and values of new prompts into their pages; keeps their last states for the first token."""
        if not prompts:
            return
        for prompt in prompts:
            prompt.pages = self.ledger.take(self.ledger.pages_for(len(prompt.tokens)))
        listed = [(prompt.place, held, page) for prompt in prompts for held, page in enumerate(prompt.pages)]
        place, held, page = self.index(listed).unbind(1)
        self.prompt_table[place, held] = page
        place, length = self.index([(prompt.place, len(prompt.tokens)) for prompt in prompts]).unbind(1)
        self.prompt_length[place] = length
        left = sorted(prompts, key=lambda prompt: len(prompt.tokens))  # equal lengths together: little padding
        while left:
            longest = len(left[-1].tokens)
            some = [left.pop() for _ in range(min(len(left), max(1, PREFILL // longest)))]
            self.prefill_together(some, longest)

    def prefill_together(self, prompts: list[Prompt], longest: int) -> None:
        """Runs one pass over concatenated prompts; only attention sees them right-padded."""
        stack, num = self.stack, len(prompts)
        spot, position, page, last = (some.to(self.device) for some in spots(prompts, longest, self.page))
        offset = position % self.page
        angles = tuple(some.index_select(0, position) for some in self.angles)
        state = stack.embed(self.index([token for prompt in prompts for token in prompt.tokens]))

        def padded(some: Tensor) -> Tensor:
            if len(some) < num * longest:
                some = some.new_zeros(num * longest, *some.shape[1:]).index_copy_(0, spot, some)
            return some.unflatten(0, (num, longest)).transpose(1, 2)

        for layer in range(stack.num_layers):
            query, key, value = stack.project(layer, state, angles)
            self.keys[layer][page, offset], self.values[layer][page, offset] = key, value
            attended = kernels.attend_all(padded(query), padded(key), padded(value), stack.attention(layer))
            rows = attended.transpose(1, 2).flatten(0, 1)
            state = stack.finish(layer, state, rows if len(state) == len(rows) else rows[spot])
        for prompt, own in zip(prompts, state[last], strict=True):
            prompt.state = own
        if self.routes is not None:
            self.routes.keep(prompts, stack.chosen)

    def extend(self, rows: list[CachedRow]) -> dict[CachedRow, Tensor]:
        """Reads the rows' tokens that are not in their pages yet, all at once: each token is a row of its own that
        sees the keys up to it. Returns the last state of each row.
        """
        rows = sorted(rows, key=lambda row: row.prompt.place)
        who = [row for row in rows for _ in range(len(row.own) - row.read)]
        token = self.index([token for row in rows for token in row.own[row.read :]])
        length = self.index([time for row in rows for time in range(row.read, len(row.own))])
        place, states = self.index([row.place for row in who]), []
        for first in range(0, len(who), EXTEND):
            some = slice(first, first + EXTEND)
            prompts = [row.prompt.place for row in who[some]]
            sharing = [part.to(self.device) for part in clusters(prompts, len(prompts), self.members, self.num_rows)]
            look = self.look(place[some], token[some], length[some])
            states.append(self.forward(look, place[some], *sharing))
        ends = torch.tensor([len(row.own) - row.read for row in rows]).cumsum(0) - 1
        return dict(zip(rows, torch.cat(states)[ends.to(self.device)], strict=True))

    def begin(self, rows: list[CachedRow]) -> None:
        """Samples the first token of rows that join, from their last states."""
        place = self.index([row.place for row in rows])
        self.prompt_of[place] = self.index([row.prompt.place for row in rows])
        self.result[place] = self.index([row.result for row in rows])
        self.time[place] = self.index([row.time for row in rows])
        self.length[place] = self.index([len(row.own) for row in rows])
        self.done[place] = False
        if self.routes is not None:
            self.routes.begin(rows)
        behind = [row for row in rows if row.own]
        given = [(row, len(row.pages)) for row in behind]
        for row, held in given:
            row.pages += self.ledger.take(max(0, self.ledger.pages_for(len(row.own)) - held))
        self.tell(given)
        known = self.extend(behind) if behind else {}
        states = [known.get(row, row.prompt.state) for row in rows]
        logits = self.stack.logits(torch.stack([state for state in states if state is not None]))
        self.choose(place, logits, self.drawn_with(place))
        for row in rows:
            row.time, row.length, row.read = row.time + 1, len(row.own), len(row.own)

    # ------------------------------------------------------------------------------------------------ steps
    def drawn_with(self, place: Tensor) -> Tensor | None:
        """Returns the uniform numbers of the rows' next tokens; None for greedy decoding."""
        if self.way.is_greedy:
            return None
        uniform = self.results.uniform
        return uniform[self.result[place], self.time[place].clamp(max=uniform.shape[1] - 1)]

    def choose(self, place: Tensor, logits: Tensor, uniform: Tensor | None) -> None:
        """Chooses a token for each row, records it, and advances the row's time."""
        narrowing, eos, limit = self.way.change, self.way.eos, self.results.limit
        token, logp, model = kernels.draw_tokens(logits, uniform, narrowing)
        records = [(self.results.tokens, token), (self.results.logp, logp), (self.results.logp_model, model)]
        records = records if narrowing is not None else records[:2]
        note = kernels.compiled().note if logits.is_cuda else kernels.note
        note(place, records, self.result, self.time, self.done, self.last, limit, eos)

    def look(self, place: Tensor, token: Tensor, length: Tensor) -> Look:
        """Returns the step inputs for tokens after `length` own tokens of the rows at `place`."""
        page = self.table[place, length // self.page]
        position = self.prompt_length[self.prompt_of[place]] + length
        return Look(token, page, length % self.page, length + 1, position)

    def forward(self, look: Look, place: Tensor, rows: Tensor, prompt: Tensor) -> Tensor:
        """Returns states after the tokens of `look`, of the rows at `place`, and stores their keys and values in the
        pages. `rows` [C, M] and `prompt` [C] are the clusters of rows with one prompt.
        """
        stack, number = self.stack, torch.arange(len(place), device=self.device)
        angles = tuple(some.index_select(0, look.position) for some in self.angles)
        state = stack.embed(look.token)
        shared = (rows, self.prompt_table, prompt, self.prompt_length, prompt)
        own = (number.unsqueeze(1), self.table, place, look.seen, number)
        # Few rows would leave most of the GPU idle: their keys are then read in parts, side by side.
        splits = max(1, min(8, 1024 // (len(place) * stack.num_key_heads)))
        for layer in range(stack.num_layers):
            keys, values = self.keys[layer], self.values[layer]
            query = stack.place(layer, state, angles, CachePlaces(keys, values, look.page, look.offset))
            how = stack.attention(layer)
            if query.is_cuda and how.is_plain:
                attended = kernels.compiled().attend(query, keys, values, shared, own, how.scale, splits)
            else:
                whose = self.prompt_of[place]
                before = Seen(self.prompt_table[whose], self.prompt_length[whose], look.position)
                since = Seen(self.table[place], look.seen, look.seen - 1)
                attended = kernels.attend_pages(query, keys, values, before, since, how)
            state = stack.finish(layer, state, attended)
        if self.routes is not None:
            self.routes.note(self.result[place], look.position, stack.chosen, self.done[place])
        return state

    def step(self, place: Tensor, rows: Tensor, prompt: Tensor) -> None:
        """Decodes one token of the rows at `place`; finished rows write to the padding."""
        if place.is_cuda:
            found, uniform = kernels.compiled().look(
                place, self.table, self.page, self.length, self.prompt_of, self.prompt_length, self.last, self.done,
                self.result, self.time, None if self.way.is_greedy else self.results.uniform,
            )  # fmt: skip
            look = Look(found[0], found[1], found[2], found[3], found[4], uniform)
        else:
            length = self.length[place]
            look = self.look(place, self.last[place], length)._replace(uniform=self.drawn_with(place))
            self.length[place] = length + ~self.done[place]
        self.choose(place, self.stack.logits(self.forward(look, place, rows, prompt)), look.uniform)

    def steps(self, active: list[CachedRow], num: int) -> None:
        """Runs `num` steps of all active rows."""
        active.sort(key=lambda row: row.prompt.place)  # a cluster is of neighbours with one prompt
        sizes = (*SIZES, len(active)) if self.device.type == "cuda" else (len(active),)
        size = next(size for size in sizes if size >= len(active))
        place = torch.full((size,), self.num_rows)  # padding up to a size whose graph is recorded
        place[: len(active)] = torch.tensor([row.place for row in active])
        rows, prompt = clusters([row.prompt.place for row in active], size, self.members, self.num_rows)
        if self.device.type == "cuda" and self.stack.is_static:
            self.graphs.replay(self.way, place, rows, prompt, num)
        else:
            inputs = [some.to(self.device) for some in (place, rows, prompt)]
            for _ in range(num):
                self.step(*inputs)
        for row in active:
            row.time, row.length = row.time + num, row.length + num  # upper bounds: the device stopped at a row's end
