"""The scheduler: rows join when pages are free, decode together, and leave when they end. Axes: B results, N tokens.

A row is a prompt's sample. Rows of one prompt share its pages; each has pages of its own for what it wrote, taken as it
grows and given back when it ends. If pages run out, the youngest row gives its pages back and joins again later, with
what it wrote as part of its prompt. The token at time t of a result comes from that result's t-th uniform number alone.

On a GPU a step is one CUDA graph for each size of batch; every `interval` steps the host looks who has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.sampling import kernels
from assay.sampling.stacks import Places, Stack
from assay.types import AssayError

SIZES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
PREFILL = 32_768
"""Tokens of prompts that go through the network at once."""


@dataclass(eq=False)
class Prompt:
    """Tokens that rows share, their pages, and how many rows still need them."""

    tokens: list[int]
    place: int = -1
    pages: list[int] = field(default_factory=list)
    users: int = 0
    state: Tensor | None = None


@dataclass(eq=False)
class Row:
    """One result that is being written: which, from which time on, where its state is."""

    result: int
    prompt: Prompt
    time: int = 0
    place: int = -1
    pages: list[int] = field(default_factory=list)
    length: int = 0


def attend_all(query: Tensor, key: Tensor, value: Tensor, *, scale: float, grouped: bool) -> Tensor:
    """Causal attention of whole prompts, [G, H, T, D]."""
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, is_causal=True, scale=scale, enable_gqa=grouped)


class Sampler:
    """Decodes with a stack's weights. `rows` decode at once at most; `pages` of `page` tokens hold keys and values."""

    def __init__(
        self, stack: Stack, *, rows: int, pages: int, longest: int, page: int = 64, interval: int = 16
    ) -> None:
        self.stack, self.page, self.interval = stack, page, interval
        weight = stack.weight
        self.device, self.dtype = weight.device, weight.dtype
        self.members = max(1, 16 // (stack.num_heads // stack.num_key_heads))
        self.shape = (2, stack.num_layers, pages, page, stack.num_key_heads, stack.head_size)
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.address = 0
        self.free = list(range(pages - 1, 0, -1))  # page 0 is where padding writes
        self.num_rows, self.longest, self.most = rows, longest, -(-longest // page) + 1

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=self.device)

        # The last place of each is nobody's: padding reads and writes there.
        self.table, self.prompt_table = whole(rows + 1, self.most), whole(rows + 1, self.most)
        self.length, self.prompt_length = whole(rows + 1), whole(rows + 1)
        self.prompt_of = torch.full((rows + 1,), rows, dtype=torch.int64, device=self.device)
        self.last, self.time, self.result = whole(rows + 1), whole(rows + 1), whole(rows + 1)
        self.done = torch.ones(rows + 1, dtype=torch.bool, device=self.device)
        self.places, self.prompt_places = list(range(rows - 1, -1, -1)), list(range(rows - 1, -1, -1))
        self.graphs: dict[Any, tuple[Any, dict[str, Tensor]]] = {}
        self.tokens, self.greedy, self.eos = whole(0, 0), False, -1

    # ------------------------------------------------------------------------------------------------ memory
    def hold(self) -> None:
        """Allocates the pages, one buffer for all layers. Graphs know its address: recorded anew where it moved."""
        if self.keys:
            return
        buffer = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        if buffer.data_ptr() != self.address:
            self.graphs, self.address = {}, buffer.data_ptr()
        self.keys, self.values = (list(some.unbind()) for some in buffer.unbind())

    def release(self) -> None:
        """Gives the pages' memory back until the next call needs it."""
        self.keys, self.values = [], []

    # ------------------------------------------------------------------------------------------------ one call
    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        repeats: Sequence[int],
        uniform_BN: Tensor | None,
        limit_B: Tensor,
        eos: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(tokens [B, N], logp [B, N], length [B]), results in the order of prompts and their repeats.

        Without uniform numbers the likeliest token is taken. A result ends with `eos` or after its limit.
        """
        num, most = len(limit_B), int(limit_B.max())
        self.hold()
        self.reserve(num, most, uniform_BN is None, eos)
        if uniform_BN is not None:
            self.uniform[:num, :most].copy_(uniform_BN[:, :most])
        self.limit[:num].copy_(limit_B)
        self.tokens.fill_(-1)
        shared = [Prompt(list(tokens), users=many) for tokens, many in zip(prompts, repeats, strict=True)]
        which = [prompt for prompt, many in zip(shared, repeats, strict=True) for _ in range(many)]
        waiting = [Row(result, prompt) for result, prompt in enumerate(which)][::-1]
        active: list[Row] = []
        while waiting or active:
            active = self.retire(active)
            self.admit(waiting, active)
            if not active:
                continue
            steps = min(self.interval, max(1, most - min(row.time for row in active)))
            self.make_room(active, waiting, steps)
            self.steps(active, steps)
        tokens, logp = self.tokens[:num, :most].clone(), self.logp[:num, :most].clone()
        ends = tokens == eos
        length = torch.where(ends.any(1), ends.long().argmax(1) + 1, self.limit[:num])
        return tokens, logp, length

    def reserve(self, num: int, most: int, greedy: bool, eos: int) -> None:
        """Room for results; graphs know its addresses, so that they are recorded anew when it has to grow."""
        if self.tokens.shape[0] <= num or self.tokens.shape[1] <= most:
            shape = (max(num + 1, self.tokens.shape[0]), max(most + 1, self.tokens.shape[1]))
            wide = torch.promote_types(self.dtype, torch.float32)
            self.tokens = torch.zeros(shape, dtype=torch.int64, device=self.device)
            self.logp, self.uniform = (torch.zeros(shape, dtype=wide, device=self.device) for _ in range(2))
            self.limit = torch.ones(shape[0], dtype=torch.int64, device=self.device)
            self.graphs = {}
        if (greedy, eos) != (self.greedy, self.eos):
            self.greedy, self.eos, self.graphs = greedy, eos, {}

    # ------------------------------------------------------------------------------------------------ who decodes
    def retire(self, active: list[Row]) -> list[Row]:
        """Those that go on; the others give back what they held."""
        if not active:
            return active
        done = self.done[torch.tensor([row.place for row in active], device=self.device)].tolist()
        for row in (row for row, over in zip(active, done, strict=True) if over):
            self.leave(row)
        return [row for row, over in zip(active, done, strict=True) if not over]

    def leave(self, row: Row) -> None:
        """Gives back pages and place; the prompt's too when its last row has gone."""
        self.free += row.pages
        self.places.append(row.place)
        row.pages, row.place, row.length = [], -1, 0
        row.prompt.users -= 1
        if not row.prompt.users:
            self.free += row.prompt.pages
            self.prompt_places.append(row.prompt.place)

    def admit(self, waiting: list[Row], active: list[Row]) -> None:
        """Lets rows in while there are places, and pages for their prompts and first tokens."""
        joining: list[Row] = []
        spare = len(self.free) - sum(len(row.pages) < 2 for row in active)
        fresh: dict[int, Prompt] = {}
        while waiting and self.places:
            row = waiting[-1]
            new = row.prompt.place < 0 and id(row.prompt) not in fresh
            cost = 1 + (self.pages_for(len(row.prompt.tokens)) if new else 0)
            if spare < cost or (new and not self.prompt_places):
                break
            if new:
                row.prompt.place, fresh[id(row.prompt)] = self.prompt_places.pop(), row.prompt
            row.place, spare = self.places.pop(), spare - cost
            joining.append(waiting.pop())
        if waiting and not joining and not active:
            raise AssayError("the cache has too few pages for one prompt; give the sampler more pages")
        self.prefill(list(fresh.values()))
        if joining:
            self.begin(joining)
            active += joining

    def pages_for(self, tokens: int) -> int:
        """How many pages hold these."""
        return -(-tokens // self.page)

    def make_room(self, active: list[Row], waiting: list[Row], steps: int) -> None:
        """Pages for the tokens of the next steps; where there are none left, the youngest rows wait again."""
        for row in list(active):
            if row not in active:
                continue
            missing = self.pages_for(row.length + steps) - len(row.pages)
            while missing > len(self.free):
                if len(active) == 1:
                    raise AssayError("the cache has too few pages for one row; give the sampler more pages")
                self.put_back(active.pop(), waiting)
            if row in active and missing > 0:
                new = [self.free.pop() for _ in range(missing)]
                held = len(row.pages)
                self.table[row.place, held : held + missing] = torch.tensor(new, device=self.device)
                row.pages += new

    def put_back(self, row: Row, waiting: list[Row]) -> None:
        """The row gives its pages back; when it joins again, what it wrote is part of a prompt of its own."""
        wrote = self.tokens[row.result, : row.time].tolist()
        self.done[row.place] = True
        first = row.time - row.length - 1  # what its present prompt holds of what it wrote
        self.leave(row)
        waiting.append(Row(row.result, Prompt(row.prompt.tokens + wrote[first:], users=1), row.time))

    # ------------------------------------------------------------------------------------------------ prompts
    def prefill(self, prompts: list[Prompt]) -> None:
        """Keys and values of new prompts into their pages; their last states are kept for the first token."""
        for prompt in prompts:
            prompt.pages = [self.free.pop() for _ in range(self.pages_for(len(prompt.tokens)))]
            self.prompt_table[prompt.place, : len(prompt.pages)] = torch.tensor(prompt.pages, device=self.device)
            self.prompt_length[prompt.place] = len(prompt.tokens)
        left = sorted(prompts, key=lambda prompt: len(prompt.tokens))
        while left:
            longest = len(left[-1].tokens)
            some = [left.pop() for _ in range(min(len(left), max(1, PREFILL // longest)))]
            self.prefill_together(some, longest)

    def prefill_together(self, prompts: list[Prompt], longest: int) -> None:
        """One pass; shorter prompts are padded behind, where no token of theirs looks."""
        stack, num = self.stack, len(prompts)
        tokens = torch.tensor([prompt.tokens + [0] * (longest - len(prompt.tokens)) for prompt in prompts])
        lengths = torch.tensor([len(prompt.tokens) for prompt in prompts])
        place = torch.arange(longest)
        pages = torch.tensor(
            [[*prompt.pages, *[0] * (self.pages_for(longest) - len(prompt.pages))] for prompt in prompts]
        )
        page = pages[:, place // self.page].masked_fill(place >= lengths.unsqueeze(1), 0).flatten().to(self.device)
        offset = (place % self.page).repeat(num).to(self.device)
        angles = stack.angles(place.repeat(num).to(self.device))
        state = stack.embed(tokens.flatten().to(self.device))
        for layer in range(stack.num_layers):
            query, key, value = stack.project(layer, state, angles)
            self.keys[layer][page, offset], self.values[layer][page, offset] = key, value
            heads = [some.view(num, longest, -1, stack.head_size).transpose(1, 2) for some in (query, key, value)]
            attended = attend_all(*heads, scale=stack.scale, grouped=stack.num_heads != stack.num_key_heads)
            state = stack.finish(layer, state, attended.transpose(1, 2).reshape(num * longest, -1, stack.head_size))
        last = state.view(num, longest, -1)[torch.arange(num), lengths - 1]
        for prompt, own in zip(prompts, last, strict=True):
            prompt.state = own

    def begin(self, rows: list[Row]) -> None:
        """The first token of new rows, from their prompts' last states."""
        place = torch.tensor([row.place for row in rows], device=self.device)
        self.length[place] = 0
        self.prompt_of[place] = torch.tensor([row.prompt.place for row in rows], device=self.device)
        self.result[place] = torch.tensor([row.result for row in rows], device=self.device)
        self.time[place] = torch.tensor([row.time for row in rows], device=self.device)
        self.done[place] = False
        states = torch.stack([row.prompt.state for row in rows if row.prompt.state is not None])
        self.write(place, self.stack.logits(states))
        for row in rows:
            row.time += 1

    # ------------------------------------------------------------------------------------------------ steps
    def write(self, place: Tensor, logits: Tensor) -> None:
        """Chooses a token for each row, records it, and moves the row's time."""
        result, time, done = self.result[place], self.time[place], self.done[place]
        uniform = None if self.greedy else self.uniform[result, time.clamp(max=self.uniform.shape[1] - 1)]
        token, logp = kernels.choose(logits, uniform)
        where, when = result.masked_fill(done, len(self.tokens) - 1), time.masked_fill(done, self.tokens.shape[1] - 1)
        self.tokens[where, when], self.logp[where, when] = token, logp.to(self.logp.dtype)
        self.last[place] = token
        self.time[place] = time + ~done
        self.done[place] = done | (token == self.eos) | (time + 1 >= self.limit[result])

    def step(self, place: Tensor, rows: Tensor, prompt: Tensor) -> None:
        """One token of the rows at `place`; `rows` [C, M] and `prompt` [C] say who shares which prompt."""
        stack, number = self.stack, torch.arange(len(place), device=self.device)
        length, done, table = self.length[place], self.done[place], self.table[place]
        page = table.gather(1, (length // self.page).unsqueeze(1)).squeeze(1)
        offset, seen = length % self.page, length + 1
        owner = self.prompt_of[place]
        angles = stack.angles(self.prompt_length[owner] + length)
        state = stack.embed(self.last[place])
        shared = (rows, self.prompt_table, prompt, self.prompt_length, prompt)
        own = (number.unsqueeze(1), table, number, seen, number)
        splits = max(1, min(8, 1024 // (len(place) * stack.num_key_heads)))
        for layer in range(stack.num_layers):
            keys, values = self.keys[layer], self.values[layer]
            query = stack.place(layer, state, angles, Places(keys, values, page, offset))
            if query.is_cuda:
                attended = kernels.compiled().attend(query, keys, values, shared, own, stack.scale, splits)
            else:
                both = ((self.prompt_table[owner], self.prompt_length[owner]), (table, seen))
                parts = [kernels.attend_parts(query, keys, values, *whose, stack.scale) for whose in both]
                attended = kernels.merge(parts).to(query.dtype)
            state = stack.finish(layer, state, attended)
        self.length[place] = length + ~done
        self.write(place, stack.logits(state))

    def steps(self, active: list[Row], num: int) -> None:
        """`num` steps of all active rows."""
        active.sort(key=lambda row: row.prompt.place)
        sizes = (*SIZES, len(active)) if self.device.type == "cuda" else (len(active),)
        size = next(size for size in sizes if size >= len(active))
        nobody = self.num_rows
        place = torch.full((size,), nobody)
        place[: len(active)] = torch.tensor([row.place for row in active])
        rows, prompt = self.clusters(active, size)
        if self.device.type == "cuda":
            self.replay(place, rows, prompt, num)
        else:
            for _ in range(num):
                self.step(place, rows, prompt)
        for row in active:
            row.time, row.length = row.time + num, row.length + num

    def clusters(self, active: list[Row], size: int) -> tuple[Tensor, Tensor]:
        """Places in the batch of at most `members` rows with one prompt, and the prompt of each such cluster."""
        found: list[tuple[int, list[int]]] = []
        for place, row in enumerate(active):
            if found and found[-1][0] == row.prompt.place and len(found[-1][1]) < self.members:
                found[-1][1].append(place)
            else:
                found.append((row.prompt.place, [place]))
        num = next(some for some in (*SIZES, len(found)) if some >= len(found))
        rows = torch.full((num, self.members), -1)
        prompt = torch.full((num,), self.num_rows)
        for cluster, (who, places) in enumerate(found):
            rows[cluster, : len(places)], prompt[cluster] = torch.tensor(places), who
        if size > len(active):  # padding attends to nothing shared: its parts must still be written
            spare = torch.arange(len(active), size)
            extra = torch.full((-(-len(spare) // self.members), self.members), -1)
            extra.view(-1)[: len(spare)] = spare
            rows = torch.cat([rows, extra])
            prompt = torch.cat([prompt, torch.full((len(extra),), self.num_rows)])
        return rows, prompt

    def replay(self, place: Tensor, rows: Tensor, prompt: Tensor, num: int) -> None:
        """The step as a CUDA graph, recorded once for each shape."""
        key = (len(place), len(rows))
        if key not in self.graphs:
            self.graphs[key] = self.record(place, rows, prompt)
        graph, inputs = self.graphs[key]
        for name, value in (("place", place), ("rows", rows), ("prompt", prompt)):
            inputs[name].copy_(value, non_blocking=True)
        for _ in range(num):
            graph.replay()

    def record(self, place: Tensor, rows: Tensor, prompt: Tensor) -> tuple[Any, dict[str, Tensor]]:
        """Warms the kernels up on nobody's rows, then captures the step."""
        inputs = {
            "place": torch.full_like(place, self.num_rows).to(self.device),
            "rows": rows.to(self.device),
            "prompt": torch.full_like(prompt, self.num_rows).to(self.device),
        }
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(**inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(**inputs)
        return graph, inputs
