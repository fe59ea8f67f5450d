"""Replay buffer of past transitions, and transitions as columns. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
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
                from assay.parts.sources.chained import following  # here: most runs have no use for it

                known = state["columns"].get(FOLLOWING)
                if known is not None:
                    known = state["columns"][FOLLOWING] = known.to(columns["mask"].device)
                columns[FOLLOWING] = following(fresh, columns, state, known, self.capacity)
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
        columns = {name: ring for name, ring in state["columns"].items() if name != FOLLOWING}
        if self.steps > 1:
            from assay.parts.sources.chained import windows  # here: most runs have no use for it

            found, ahead = windows(index, columns, state["columns"][FOLLOWING], self.steps, self.discount)
            return from_columns(found).add({AHEAD: ahead.unsqueeze(1).expand(-1, 2)})
        return from_columns({name: ring.index_select(0, index) for name, ring in columns.items()})

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
