"""Values of goals on a line, where all rows are enumerated and the fixed point is known. Axes: L places, N heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.parts.sources.relabelled import Places, Relabelled

NO_TASK: Any = None
"""A task that only knows distances."""


class LineValue:
    """V(s, g) of places 0 to L - 1 as a table [L, L], one head."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def __call__(self, context: Any) -> Tensor:
        """Returns values [1, B, T]."""
        place, goal = (context[name][..., 0].long() for name in ("observation", "goal"))
        return self.table[place, goal].unsqueeze(0)


class LineView:
    """A view in which every model is the same table."""

    def __init__(self, table: Tensor) -> None:
        self.value = LineValue(table)

    def model(self, name: str) -> LineValue:
        """Returns the table."""
        return self.value


def line_rows(source: Relabelled, length: int) -> Experience:
    """Returns every (place, goal here or ahead) of one episode that walks a line to its end, as rows of the source."""
    steps = torch.arange(length, dtype=torch.float64).view(1, -1, 1)
    columns = {"observation": steps, "achieved": steps, "action": torch.zeros(1, length, dtype=torch.long)}
    time, goal = (index.numpy() for index in torch.triu_indices(length, length))
    episode, ahead = torch.zeros(len(time), dtype=torch.long).numpy(), goal > time
    places = Places(episode, goal, ahead)
    end = source.ends(time, places, length - 1)
    record = source.rows(columns, (episode, time, end), places, NO_TASK)
    return record.with_columns(reward=record.reward.double())


def line_values(source: Relabelled, target: Any, length: int) -> Tensor:
    """Returns V [L, L] at the fixed point of a target on a line, for goals ahead; exact after L sweeps."""
    table, rows = torch.zeros(length, length, dtype=torch.float64), line_rows(source, length)
    place, goal = (rows.context[name][:, 0, 0].long() for name in ("observation", "goal"))
    for _ in range(length + 1):
        table[place, goal] = target(rows, LineView(table.clone()))[0, :, 0]
    return table
