"""Replay buffer of past transitions, and transitions as columns. Axes: B sequences, T = 2 columns, N rows of a dataset,
F numbers of a row, S batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import COLUMNS, Draw, Experience, State
from assay.core.slots import Scene, Source
from assay.ops import random

AHEAD = "steps_ahead"
"""Column of transitions over several steps: how many rewards are in the sum, which is the power of the discount."""
FOLLOWING = "following"


@dataclass(frozen=True)
class Replay(Source):
    """Stores the last `capacity` transitions; each step yields `updates` batches of `batch` drawn uniformly.

    A transition is a sequence of two columns: the decision, and the context after it with mask false. With `steps` n
    its reward is r_t + discount r_t+1 + ... and the context that after n decisions, or after the last one that is known
    of the episode: m <= n rewards, the column `steps_ahead`, by which one-step targets bootstrap with discount^m.
    `discount` is that of the target. A window ends with its episode: a truncated one bootstraps, a terminal one does
    not. Degenerate: it yields nothing while it is empty or holds fewer than `warmup` transitions; with steps 1 the
    discount is not used. Sources: Lin 1992; Sutton 1988. Assumes off-policy losses; for n > 1 that the decisions of n
    steps are nearly the policy's.
    """

    capacity: int = 100_000
    batch: int = 256
    updates: int = 1
    warmup: int = 1_000
    steps: int = 1
    discount: float = 0.99

    def __post_init__(self) -> None:
        check_warmup(self.warmup, self.capacity)
        if self.steps < 1:
            raise AssayError(f"source.steps is {self.steps}. Use 1, or how many rewards a target sums, such as 3")

    @property
    def writes(self) -> Mapping[str, str]:
        """The column of transitions over several steps."""
        return {AHEAD: "BT: rewards in the sum"} if self.steps > 1 else {}

    @property
    def is_chained(self) -> bool:
        """Whether each transition knows the one that followed it."""
        return self.steps > 1

    def init(self, scene: Scene) -> State:
        """Returns an empty buffer; its tensors are allocated when the first transitions arrive, and grow to the
        capacity.
        """
        chain = {"open": torch.zeros(0, dtype=torch.int64)} if self.is_chained else {}
        return {"columns": {}, "next": 0, "size": 0, **chain}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Stores the fresh transitions, then yields batches once `warmup` transitions are stored."""
        fresh, draw = scene.fresh, scene.draw
        if fresh is not None:
            columns = transitions(fresh)
            if self.is_chained:
                columns[FOLLOWING] = self.following(fresh, columns, state)
            self.store(columns, state)
        if state["size"] < max(self.warmup, 1):
            return
        for update in range(self.updates):
            yield from self.drawn(scene, state, draw.at(4, update))

    def drawn(self, scene: Scene, state: State, draw: Draw) -> Iterator[Experience]:
        """Yields the batch of one update."""
        yield self.rows(integers(draw, state["size"], self.batch, state["columns"]["mask"]), state)

    def rows(self, index: Tensor, state: State) -> Experience:
        """Returns the transitions that begin in these places of the buffer."""
        if self.steps > 1:
            return self.windows(index, state["columns"])
        columns = state["columns"].items()
        return from_columns({name: ring.index_select(0, index) for name, ring in columns if name != FOLLOWING})

    def windows(self, index: Tensor, ring: dict[str, Tensor]) -> Experience:
        """Returns transitions over up to `steps` decisions."""
        last, reward = index, ring["reward"][index, 0]
        ahead = torch.ones_like(reward)
        for power in range(1, self.steps):
            onward = ring[FOLLOWING][last]
            goes = onward >= 0
            last = torch.where(goes, onward, last)
            reward = reward + torch.where(goes, self.discount**power * ring["reward"][last, 0], 0.0)
            ahead = ahead + goes
        pairs = ((name, column) for name, column in ring.items() if name != FOLLOWING)
        found = {name: torch.stack((column[index, 0], column[last, 1]), 1) for name, column in pairs}
        found["reward"][:, 0] = reward
        for name in ("terminal", "truncated"):
            found[name][:, 0] = ring[name][last, 0]
        return from_columns(found).add({AHEAD: ahead.unsqueeze(1).expand(-1, 2)})

    def following(self, fresh: Experience, columns: dict[str, Tensor], state: State) -> Tensor:
        """Returns the place of the transition that follows each fresh one in its episode, -1 if it is not there (yet);
        tells those of the last step what follows them: the row continues where the context is the same, number by
        number.
        """
        row, column = fresh.mask[:, :-1].nonzero(as_tuple=True)
        count, home = len(row), row.device
        place = (state["next"] + torch.arange(count, device=home)) % self.capacity
        goes_on = ~(columns["terminal"] | columns["truncated"])[:, 0]
        found, none = torch.full_like(place, -1), torch.full((len(fresh),), -1, device=home)
        is_next = (row[1:] == row[:-1]) & (column[1:] == column[:-1] + 1) & goes_on[:-1]
        found[:-1] = torch.where(is_next, place[1:], -1)
        before, ring = state["open"].to(home), state["columns"]
        if len(before) == len(fresh) and ring:
            begins = (column == 0).nonzero().squeeze(1)
            past = before[row[begins]]
            there = (past >= 0) & ((past - state["next"]) % self.capacity >= count)
            for name in (one for one in columns if one.startswith("context.")):
                same = ring[name].to(home)[past.clamp(min=0), 1] == columns[name][begins, 0]
                there = there & (same.flatten(1).all(1) if same.dim() > 1 else same)
            ring[FOLLOWING] = ring[FOLLOWING].to(home)
            ring[FOLLOWING][past[there]] = place[begins[there]]
        ends = goes_on & (column == fresh.num_columns - 2)
        none[row[ends]] = place[ends]
        state["open"] = none
        return found

    def store(self, columns: dict[str, Tensor], state: State) -> None:
        """Writes rows into the buffer; the oldest are overwritten first."""
        count = len(columns["mask"])
        if count > self.capacity:
            raise AssayError(
                f"one step gathers {count} transitions, more than the replay buffer holds (capacity {self.capacity}). "
                "Raise source.capacity"
            )
        if state["columns"] and (odd := set(columns) ^ set(state["columns"])):
            raise AssayError(
                f"the replay buffer holds {', '.join(state['columns'])}; the new experience differs in "
                f"{', '.join(sorted(odd))}. Use one buffer for each kind of experience"
            )
        room = self.room(state["size"] + count)
        for name, value in columns.items():
            ring = state["columns"].get(name, value[:0]).to(value.device)  # a checkpoint brings it back on the host
            state["columns"][name] = ring
            if len(ring) < room:
                state["columns"][name] = torch.cat([ring, value.new_zeros(room - len(ring), *value.shape[1:])])
        place = torch.from_numpy((state["next"] + np.arange(count)) % self.capacity).to(columns["mask"].device)
        for name, value in columns.items():
            state["columns"][name][place] = value
        state["next"] = (state["next"] + count) % self.capacity
        state["size"] = min(self.capacity, state["size"] + count)

    def room(self, needed: int) -> int:
        """Returns the rows to allocate: a power of two up to the capacity, so that checkpoints stay as small as the
        data.
        """
        return min(self.capacity, max(1024, 1 << (needed - 1).bit_length()))


def integers(draw: Draw, bound: int, count: int, like: Tensor) -> Tensor:
    """Returns random integers in [0, bound) on the device of a tensor, the same on all."""
    if like.is_cpu:
        return torch.from_numpy(random.integers(draw, bound, count))
    from assay.ops import random_torch  # here: a run on the CPU does not need it

    word = random_torch.words((draw.seed,), draw.path, like.device)
    return random_torch.integers(word, bound, count)[0]


def check_warmup(warmup: int, capacity: int) -> None:
    """Refuses a buffer that never holds what it waits for; a capacity below 1 is refused elsewhere."""
    if 0 < capacity < warmup:
        raise AssayError(
            f"source.warmup is {warmup}, more than the replay buffer holds (capacity {capacity}): nothing would be "
            "trained. Raise source.capacity, or lower source.warmup"
        )


PLAIN = ("action", "mask", "logp", "reward", "terminal", "truncated")


def transitions(experience: Experience) -> dict[str, Tensor]:
    """Returns each decision with the column after it, as columns [decisions, 2, ...]."""
    row, column = experience.mask[:, :-1].nonzero(as_tuple=True)

    def pair(value: Tensor) -> Tensor:
        return torch.stack((value[row, column], value[row, column + 1]), 1)

    columns = {name: pair(getattr(experience, name)) for name in PLAIN}
    columns["mask"][:, 1] = False
    if experience.cost is not None:
        columns["cost"] = pair(experience.cost)
    if "success" in experience.extra:
        columns["success"] = pair(experience.column("success"))
    if "path" in experience.extra:  # a path actor needs it to score the decision again
        columns["path"] = pair(experience.column("path"))
    return columns | {f"context.{name}": pair(value) for name, value in experience.context.items()}


def from_columns(columns: dict[str, Tensor]) -> Experience:
    """Returns the record that `transitions` took apart."""
    context = {name.removeprefix("context."): value for name, value in columns.items() if name.startswith("context.")}
    record = Experience(context, *(columns[name] for name in PLAIN))  # type: ignore[arg-type]
    record = record.with_columns(cost=columns.get("cost"))
    extra: dict[str, Tensor] = {name: columns[name] for name in ("success", "path") if name in columns}
    return record.add(extra) if extra else record


class Packed(dict[str, Tensor]):
    """Columns [N, ...] by name, which are views of one block [N, F] for each dtype.

    A random row of a large dataset is far from the others in memory: with a block it costs one access instead of one
    for each column. Degenerate: no columns have no blocks.
    """

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        super().__init__(columns)  # in their order
        self.blocks: list[tuple[Tensor, list[int], list[tuple[str, torch.Size]]]] = []
        for dtype in dict.fromkeys(column.dtype for column in columns.values()):
            mine = {name: column for name, column in columns.items() if column.dtype == dtype}
            shapes = [(name, column.shape[1:]) for name, column in mine.items()]
            sizes = [math.prod(shape) for _, shape in shapes]
            block = torch.cat([column.reshape(len(column), -1) for column in mine.values()], 1)
            self.blocks.append((block, sizes, shapes))
            for (name, shape), part in zip(shapes, block.split(sizes, 1), strict=True):
                self[name] = part.view(len(part), *shape)

    def gathered(self, index: Tensor) -> dict[str, Tensor]:
        """Returns the rows at indices of any shape, of every column."""
        found: dict[str, Tensor] = {}
        for block, sizes, shapes in self.blocks:
            parts = torch.split_with_sizes(block.index_select(0, index.reshape(-1)), sizes, 1)
            for (name, shape), part in zip(shapes, parts, strict=True):
                found[name] = part.view(index.shape + shape)
        return {name: found[name] for name in self if name in found}


def unstacked(batches: Experience) -> Iterator[Experience]:
    """Yields the batches of which a record [S, B, ...] is a stack; they share its memory."""
    parts: dict[str, list[Any]] = {}
    for name in COLUMNS:
        value = batches.__dict__[name]
        if isinstance(value, Tensor):
            parts[name] = list(value.unbind(0))
        elif value is not None:
            each = {key: column.unbind(0) for key, column in value.items()}
            parts[name] = [{key: own[place] for key, own in each.items()} for place in range(len(batches))]
    for place in range(len(batches)):
        yield batches.with_columns(**{name: own[place] for name, own in parts.items()})
