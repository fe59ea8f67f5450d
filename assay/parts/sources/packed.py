"""Columns of a dataset side by side in memory, so that a row of all of them is gathered at once.

Axes: N rows of a dataset, n gathered rows, F numbers of a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from assay.core.record import COLUMNS, Experience


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
