"""Which rows of a batch go through the models together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from assay.types import Experience


def units(batch: Experience, together: frozenset[str]) -> Tensor:
    """A label for each row, equal for rows that have equal values of a named column."""
    label = torch.arange(len(batch))
    for name in sorted(together):
        column = getattr(batch, name)
        if column is not None:
            # Rows of one unit take the smallest label of the unit; groups contain episodes, so one pass a column is
            # enough.
            _, index = torch.unique(column.cpu(), return_inverse=True)
            smallest = torch.full((int(index.max()) + 1,), len(batch)).scatter_reduce(0, index, label, "amin")
            label = smallest[index]
    return label


def by_length(batch: Experience, together: frozenset[str], tokens: int, rows: int) -> list[Tensor]:
    """Row indices of micro-batches of at most `tokens` columns x rows, and of at most `rows` rows (0: any number); or
    of one unit where it alone is more. The longest come first: what is too much for the memory fails at once. A batch
    without rows is one part without rows.
    """
    if not len(batch):
        return [torch.empty(0, dtype=torch.int64)]
    there = batch.context.get("valid", batch.mask)
    columns = torch.arange(1, batch.num_columns + 1, device=there.device)
    length = (there * columns).amax(1).cpu()
    label = units(batch, together)
    longest = torch.zeros_like(length).scatter_reduce(0, label, length, "amax")[label]
    order = torch.argsort(longest * (len(batch) + 1) + label, descending=True, stable=True)
    found: list[list[int]] = []
    begin, room = 0, rows or len(batch)
    names, lengths = label[order].tolist(), longest[order].tolist()
    sizes = Counter(names)
    for place, name in enumerate(names):
        if place and name == names[place - 1]:
            continue  # its unit's first row has decided
        size = sizes[name]
        held = place - begin + size
        if found and (held > room or held * lengths[begin] > tokens):
            begin = place
        if begin == place:
            found.append([])
        found[-1] += order[place : place + size].tolist()
    return [torch.tensor(some) for some in found]


def widen(column: Tensor, num_columns: int) -> Tensor:
    """[b, t, ...] with zeros up to `num_columns`; a column without the axis T as it is."""
    missing = num_columns - column.shape[1] if column.dim() > 1 else 0
    return torch.cat([column, column.new_zeros(len(column), missing, *column.shape[2:])], 1) if missing else column


def whole_units(batch: Experience, together: frozenset[str], size: int) -> Iterator[Tensor]:
    """Row indices of micro-batches of about `size` rows that keep equal values of the named columns in one part."""
    label = units(batch, together)
    start: list[Tensor] = []
    held = 0
    for unit in torch.unique(label):
        members = (label == unit).nonzero().squeeze(1)
        if start and held + len(members) > size:
            yield torch.cat(start)
            start, held = [], 0
        start.append(members)
        held += len(members)
    yield torch.cat(start)
