"""Functions of tensors that are replayed: on CUDA a function whose shapes come again becomes a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from assay.ops.recording import recorded
from assay.core.record import Experience

Columns = dict[str, Tensor]
"""Tensors by name; those of a record under 'context.' and 'extra.' where it maps names to them."""
WARM_UPS = 3
"""How often a function runs before it is captured: libraries choose their kernels and ask for memory then."""


def columns_of(record: Experience) -> Columns:
    """A record as tensors by name; what is absent is left out."""
    columns: Columns = {}
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Tensor):
            columns[f.name] = value
        elif value:
            columns |= {f"{f.name}.{name}": column for name, column in value.items()}
    return columns


def record_of(columns: Columns) -> Experience:
    """The record that `columns_of` took apart."""
    record: dict[str, Any] = {"context": {}, "extra": {}}
    for name, column in columns.items():
        above, _, own = name.partition(".")
        if own:
            record[above][own] = column
        else:
            record[name] = column
    return Experience(**record)


def by_time(columns: Columns) -> Columns:
    """The same columns [S, B, T, ...], with what belongs to one time in one piece of memory.

    `Experience.now` and `after` are then whole pieces, and a layer is one product of all their rows; else torch would
    take them row by row, with as many copies of the weights as there are rows.
    """
    return {
        name: column.movedim(2, 0).contiguous().movedim(0, 2) if column.dim() > 3 else column
        for name, column in columns.items()
    }


class Replayed:
    """A function of tensors by name without side effects; its results are those of the latest call, in fixed places.

    The first call runs it plainly. The second, where `captures`, captures it as a graph that later calls replay: inputs
    are copied to where the graph reads them, unless they are there already.
    """

    def __init__(self, function: Callable[[Columns], Columns], captures: bool, pool: Any = None) -> None:
        self.function, self.captures, self.pool = function, captures, pool
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Columns = {}
        self.outputs: Columns = {}

    def __call__(self, inputs: Columns) -> Columns:
        """The function's results."""
        self.calls += 1
        if self.graph is None and not (self.captures and self.calls > 1):
            return self.function(inputs)
        if self.graph is None:
            self.capture(inputs)
        assert self.graph is not None
        for name, place in self.inputs.items():
            if place.data_ptr() != inputs[name].data_ptr():
                place.copy_(inputs[name])
        self.graph.replay()
        return self.outputs

    def capture(self, inputs: Columns) -> None:
        """Runs the function on a side stream, then records it."""
        self.inputs = inputs
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self.function(self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with recorded(self.graph, self.pool):
            self.outputs = self.function(self.inputs)
