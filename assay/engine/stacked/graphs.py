"""Replays functions of tensors: on CUDA a function whose shapes repeat becomes a graph. Tensors have any shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.ops.recording import record_graph

Columns = dict[str, Tensor]
"""Tensors by name; those of a record under 'context.' and 'extra.' where it maps names to them."""
WARM_UPS = 3
"""Warm-up runs before a capture, in which libraries choose their kernels and allocate memory."""
MOST_GRAPHS = 16
"""Each graph holds memory; a function whose shapes never repeat would fill it with graphs that are never replayed."""


def columns_of(record: Experience) -> Columns:
    """Returns a record as tensors by name, without absent columns."""
    columns: Columns = {}
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Tensor):
            columns[f.name] = value
        # Empty mappings and absent columns are the same record.
        elif value:
            columns |= {f"{f.name}.{name}": column for name, column in value.items()}
    return columns


def record_of(columns: Columns) -> Experience:
    """Returns the record of these columns: the inverse of `columns_of`."""
    record: dict[str, Any] = {"context": {}, "extra": {}}
    for name, column in columns.items():
        above, _, own = name.partition(".")
        if own:
            record[above][own] = column
        else:
            record[name] = column
    return Experience(**record)


def by_time(columns: Columns) -> Columns:
    """Returns the same columns [S, B, T, ...], contiguous in memory for each time.

    `Experience.now` and `after` are then contiguous, and a layer is one product of all their rows; else torch would
    take them row by row, with as many copies of the weights as there are rows.
    """
    return {
        name: column.movedim(2, 0).contiguous().movedim(0, 2) if column.dim() > 3 else column
        for name, column in columns.items()
    }


class Replayed:
    """A function of tensors by name without side effects; its results are those of the latest call, in fixed buffers.

    The first call runs it, the second captures it as a graph that this and later calls replay: inputs are copied to
    the graph's input buffers, unless they are there already.
    """

    def __init__(self, function: Callable[[Columns], Columns], pool: Any) -> None:
        self.function, self.pool = function, pool
        self.has_run = False
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Columns = {}
        self.outputs: Columns = {}

    def __call__(self, inputs: Columns) -> Columns:
        """Returns the function's results."""
        if not self.has_run:  # most shapes that come once never come again: a capture would not pay
            self.has_run = True
            return self.function(inputs)
        if self.graph is None:
            self.capture(inputs)
        assert self.graph is not None
        for name, place in self.inputs.items():
            if place.data_ptr() != inputs[name].data_ptr():  # else it is another graph's output, in place already
                place.copy_(inputs[name])
        self.graph.replay()
        return self.outputs

    def capture(self, inputs: Columns) -> None:
        """Runs the function on a side stream, then records it."""
        self.inputs = inputs
        side = torch.cuda.Stream()  # CUDA does not capture on the default stream
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self.function(self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with record_graph(self.graph, self.pool):
            self.outputs = self.function(self.inputs)


class Replays:
    """Runs functions by key, each as its own graph for every set of input shapes; directly without CUDA."""

    def __init__(self, captures: bool) -> None:
        self.captures = captures
        # One pool for all graphs: they run one after the other, so that the memory of one serves the next.
        self.pool: Any = torch.cuda.graph_pool_handle() if captures else None
        self.pieces: dict[Any, Replayed] = {}

    def __call__(
        self, key: tuple[Any, ...], inputs: Columns, function: Callable[[Columns], Columns], captures: bool = True
    ) -> Columns:
        """Returns function(inputs); the function of a key may differ between calls only if `captures` is false."""
        if not (self.captures and captures):
            return function(inputs)
        full = (*key, tuple((name, tuple(column.shape)) for name, column in inputs.items()))
        if full not in self.pieces:
            if len(self.pieces) == MOST_GRAPHS:
                return function(inputs)
            self.pieces[full] = Replayed(function, self.pool)
        return self.pieces[full](inputs)
