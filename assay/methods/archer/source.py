"""Replay buffer of whole sequences. Axes: B sequences, T columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Scene, Source
from assay.ops import random
from assay.parts.sources.replay import PLAIN, Replay, from_columns

PADDED_TO = 16
"""Widths are multiples of this, so that the buffer is seldom widened."""


@dataclass(frozen=True)
class ReplaySequences(Source):
    """Stores the last `capacity` rows as gathered; each step yields `updates` batches of `batch` rows.

    For losses that need whole rows: conversations with all their turns, or fragments. A batch is cut to its longest
    row. Columns added by parts are not stored, since they become stale. Yields nothing until `warmup` rows are
    stored.
    """

    capacity: int = 4096
    batch: int = 64
    updates: int = 8
    warmup: int = 1

    def init(self, scene: Scene) -> State:
        """Returns an empty buffer."""
        return {"columns": {}, "next": 0, "size": 0}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Stores the fresh rows that have a decision, then yields batches once `warmup` rows are stored."""
        fresh, draw = scene.fresh, scene.draw
        if fresh is not None:
            rows = columns_of_rows(fresh.rows(fresh.mask.any(1)))
            width = max([column.shape[1] for column in (*rows.values(), *state["columns"].values())])
            state["columns"] = {name: widened(ring, width) for name, ring in state["columns"].items()}
            Replay(self.capacity).store({name: widened(row, width) for name, row in rows.items()}, state)
        if state["size"] < max(self.warmup, 1):
            return
        for update in range(self.updates):
            index = torch.from_numpy(random.integers(draw.at(4, update), state["size"], self.batch))
            columns = {name: ring.index_select(0, index) for name, ring in state["columns"].items()}
            yield replace(from_columns(columns), turn=columns.get("turn")).trim()


def columns_of_rows(experience: Experience) -> dict[str, Tensor]:
    """Returns the record's own columns by name, [B, T, ...], T a multiple of PADDED_TO."""
    columns = {name: getattr(experience, name) for name in PLAIN}
    optional = {"cost": experience.cost, "turn": experience.turn}
    columns |= {name: value for name, value in optional.items() if value is not None}
    columns |= {f"context.{name}": value for name, value in experience.context.items()}
    width = -(-experience.num_columns // PADDED_TO) * PADDED_TO
    return {name: widened(value, width) for name, value in columns.items()}


def widened(column: Tensor, width: int) -> Tensor:
    """Pads the column with zeros at the end of the axis T."""
    missing = width - column.shape[1]
    if missing <= 0:
        return column
    return torch.cat([column, column.new_zeros(column.shape[0], missing, *column.shape[2:])], 1)
