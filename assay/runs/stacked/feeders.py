"""Batches of S seeds at once, each what the seed's own source would have drawn. Axes: S seeds, B rows, K updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from assay.core.slots import Scene
from assay.runs.stacked import hashes
from assay.core.slots import Source, Task
from assay.parts.sources.logged import Logged
from assay.runs.stacked.graphs import Columns, columns_of
from assay.core.errors import AssayError
from assay.core.record import Draw, State


class Feeder(Protocol):
    """A source for S seeds: tickets say which rows a batch holds, `fetch` makes the batch of a ticket on the device."""

    def tickets(self, source: Source, path: tuple[int, ...]) -> Iterator[Columns]:
        """One for each update of a step whose draws have this path."""

    def fetch(self, ticket: Columns) -> Columns:
        """The batch [S, B, ...]: a function of the ticket alone."""


@dataclass(frozen=True)
class LogFeeder:
    """A log that all seeds share, held on the device: a ticket is the rows' numbers, drawn there for a whole step."""

    source: Logged
    logs: tuple[Columns, ...]
    seeds: tuple[int, ...]
    device: str

    def tickets(self, source: Source, path: tuple[int, ...]) -> Iterator[Columns]:
        """The row numbers [S, B] of each log, as `Logged` draws them."""
        updates = torch.arange(self.source.updates, device=self.device)
        word_KS = hashes.words(self.seeds, (*path, 4, updates), self.device)
        index = [
            hashes.integers(hashes.folded(word_KS, place), len(columns["mask"]), self.source.batch)
            for place, columns in enumerate(self.logs)
        ]
        for update in range(self.source.updates):
            yield {str(place): index_KSB[update] for place, index_KSB in enumerate(index)}

    def fetch(self, ticket: Columns) -> Columns:
        """The rows."""
        return columns_of(self.source.rows(self.logs, [ticket[str(place)] for place in range(len(self.logs))]))


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
            source(Scene(task, draw=Draw(seed, path)), state)
            for task, seed, state in zip(self.tasks, self.seeds, self.states, strict=True)
        ]
        for batches in zip(*draws, strict=True):
            columns = [columns_of(batch) for batch in batches]
            for name, column in columns[0].items():
                if any(name not in other or other[name].shape != column.shape for other in columns):
                    raise AssayError(
                        f"the batches of these seeds differ in the shape of column '{name}'; run the seeds one by one"
                    )
            yield {name: torch.stack([each[name] for each in columns]).to(self.device) for name in columns[0]}

    def fetch(self, ticket: Columns) -> Columns:
        """The ticket."""
        return ticket


def feeder(source: Source, tasks: Sequence[Task], seeds: Sequence[int], states: Sequence[Any], device: str) -> Feeder:
    """Who draws for these seeds; `states` are the source's, one a seed."""
    if not isinstance(source, Logged):
        return PlainFeeder(tuple(tasks), tuple(seeds), states, device)
    contents = states[0]["contents"]
    if any(state["contents"].hash != contents.hash for state in states):
        raise AssayError("these seeds learn from different logs; a stack shares one")
    logs = tuple({name: column.to(device) for name, column in columns.items()} for columns in contents.columns)
    return LogFeeder(source, logs, tuple(seeds), device)
