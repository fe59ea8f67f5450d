"""Batches of S seeds at once, equal to those the seed's own source draws. Axes: S seeds, B rows, K updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Scene, Source, Task
from assay.engine.stacked.graphs import Columns, columns_of
from assay.ops import random_torch


@runtime_checkable
class Tabled(Source, Protocol):
    """A source whose batches are rows of constant tables, drawn uniformly (an offline dataset)."""

    @property
    def batch(self) -> int:
        """Rows per table in a batch."""

    @property
    def updates(self) -> int:
        """Batches per step."""

    def tables(self, state: State) -> tuple[Sequence[Columns], str]:
        """Returns the tables and the hash of their content."""

    def rows(self, logs: Sequence[Columns], index: Sequence[Tensor]) -> Experience:
        """Returns the batch of these rows of each table: indices [B], or [S, B] for the batches of S seeds."""


class Feeder:
    """A source for S seeds: a ticket identifies the rows of a batch, `fetch` makes the batch of a ticket on the
    device.

    Tables are on the device once for all seeds, and a ticket is the row indices, drawn there for a whole step. For
    any other source a ticket is the batch: each seed's own, stacked.
    """

    def __init__(
        self, source: Source, tasks: Sequence[Task], seeds: Sequence[int], states: Sequence[State], device: str
    ) -> None:
        self.tasks, self.seeds, self.states, self.device = tasks, seeds, states, device
        self.source = source if isinstance(source, Tabled) else None
        self.tables: list[Columns] = []
        if self.source is not None:
            found, own = self.source.tables(states[0])
            if any(self.source.tables(state)[1] != own for state in states):
                raise AssayError("these seeds train on different datasets. Use one dataset for a stack.")
            # The only copy: S seeds draw from the same tensors, so that the memory does not grow with S.
            self.tables = [{name: column.to(device) for name, column in columns.items()} for columns in found]

    def tickets(self, source: Source, path: tuple[int, ...]) -> Iterator[Columns]:
        """Returns one ticket for each update of a step whose draws have this path."""
        return self.stacked(source, path) if self.source is None else self.drawn(self.source, path)

    def drawn(self, source: Tabled, path: tuple[int, ...]) -> Iterator[Columns]:
        """Returns the row indices [S, B] of each table, as the source draws them."""
        # All updates of a step in one hash: the draws of one alone are some dozens of kernels on a few numbers.
        updates = torch.arange(source.updates, device=self.device)
        word_KS = random_torch.words(self.seeds, (*path, 4, updates), self.device)
        index = [
            random_torch.integers(random_torch.folded(word_KS, place), len(columns["mask"]), source.batch)
            for place, columns in enumerate(self.tables)
        ]
        for update in range(source.updates):
            yield {str(place): index_KSB[update] for place, index_KSB in enumerate(index)}

    def stacked(self, source: Source, path: tuple[int, ...]) -> Iterator[Columns]:
        """Returns the stacked batches of all seeds."""
        each = zip(self.tasks, self.seeds, self.states, strict=True)
        drawn = [source(Scene(task, draw=Draw(seed, path)), state) for task, seed, state in each]
        for batches in zip(*drawn, strict=True):
            columns = [columns_of(batch) for batch in batches]
            for name, column in columns[0].items():
                if any(name not in other or other[name].shape != column.shape for other in columns):
                    raise AssayError(
                        f"the batches of these seeds differ in the shape of column '{name}'. Run the seeds one by one."
                    )
            yield {name: torch.stack([own[name] for own in columns]).to(self.device) for name in columns[0]}

    def fetch(self, ticket: Columns) -> Columns:
        """Returns the batch [S, B, ...]: a function of the ticket alone, so that a graph can replay it."""
        if self.source is None:
            return ticket
        return columns_of(self.source.rows(self.tables, [ticket[str(place)] for place in range(len(self.tables))]))
