"""Batches of S seeds at once, each what the seed's own source would have drawn. Axes: S seeds, B rows, K updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Source, Task
from assay.engine.stacked.graphs import Columns, columns_of
from assay.ops import random_torch


@runtime_checkable
class Tabled(Source, Protocol):
    """A source whose batches are rows of tables that never change, drawn uniformly (an offline dataset)."""

    @property
    def batch(self) -> int:
        """Rows of each table in a batch."""

    @property
    def updates(self) -> int:
        """Batches a step."""

    def tables(self, state: State) -> tuple[Sequence[Columns], str]:
        """The tables, and the hash of what they hold."""

    def rows(self, logs: Sequence[Columns], index: Sequence[Tensor]) -> Experience:
        """The batch of these rows of each table: places [B], or [S, B] for the batches of S seeds."""


class Feeder(Protocol):
    """A source for S seeds: tickets say which rows a batch holds, `fetch` makes the batch of a ticket on the device."""

    def tickets(self, source: Source, path: tuple[int, ...]) -> Iterator[Columns]:
        """One for each update of a step whose draws have this path."""

    def fetch(self, ticket: Columns) -> Columns:
        """The batch [S, B, ...]: a function of the ticket alone."""


@dataclass(frozen=True)
class TableFeeder:
    """Tables that all seeds share, held on the device: a ticket is the rows' numbers, drawn there for a whole step."""

    source: Tabled
    tables: tuple[Columns, ...]
    seeds: tuple[int, ...]
    device: str

    def tickets(self, source: Source, path: tuple[int, ...]) -> Iterator[Columns]:
        """The row numbers [S, B] of each table, as the source draws them."""
        updates = torch.arange(self.source.updates, device=self.device)
        word_KS = random_torch.words(self.seeds, (*path, 4, updates), self.device)
        index = [
            random_torch.integers(random_torch.folded(word_KS, place), len(columns["mask"]), self.source.batch)
            for place, columns in enumerate(self.tables)
        ]
        for update in range(self.source.updates):
            yield {str(place): index_KSB[update] for place, index_KSB in enumerate(index)}

    def fetch(self, ticket: Columns) -> Columns:
        """The rows."""
        return columns_of(self.source.rows(self.tables, [ticket[str(place)] for place in range(len(self.tables))]))


@dataclass(frozen=True)
class PlainFeeder:
    """Any source that needs nothing fresh: each seed's own batches, put on top of each other; a ticket is a batch."""

    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    states: Sequence[State]
    device: str

    def tickets(self, source: Source, path: tuple[int, ...]) -> Iterator[Columns]:
        """The batches of all seeds."""
        draws = [
            source(task, None, Draw(seed, path), state)
            for task, seed, state in zip(self.tasks, self.seeds, self.states, strict=True)
        ]
        for batches in zip(*draws, strict=True):
            columns = [columns_of(batch) for batch in batches]
            for name, column in columns[0].items():
                if any(name not in other or other[name].shape != column.shape for other in columns):
                    raise AssayError(
                        f"the batches of these seeds differ in the shape of column '{name}'. Run the seeds one by one."
                    )
            yield {name: torch.stack([each[name] for each in columns]).to(self.device) for name in columns[0]}

    def fetch(self, ticket: Columns) -> Columns:
        """The ticket."""
        return ticket


def feeder(source: Source, tasks: Sequence[Task], seeds: Sequence[int], states: Sequence[Any], device: str) -> Feeder:
    """The feeder of a source for these seeds; `states` are the source's, one a seed."""
    if not isinstance(source, Tabled):
        return PlainFeeder(tuple(tasks), tuple(seeds), states, device)
    tables, own = source.tables(states[0])
    if any(source.tables(state)[1] != own for state in states):
        raise AssayError("these seeds learn from different datasets. A stack shares one.")
    there = tuple({name: column.to(device) for name, column in columns.items()} for columns in tables)
    return TableFeeder(source, there, tuple(seeds), device)
