"""Splits a batch into micro-batches. Axes: B rows; what is yielded are indices of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Experience
from assay.ops import packing


def units(batch: Experience, together: frozenset[str]) -> Tensor:
    """Returns a label for each row, equal for rows that have equal values of a named column."""
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
    """Returns row indices of micro-batches of at most `tokens` columns x rows and at most `rows` rows (0: no limit);
    a unit that alone exceeds them is its own micro-batch. The longest come first, so that running out of memory fails
    at once. A batch without rows is one part without rows.
    """
    if not len(batch):
        return [torch.empty(0, dtype=torch.int64)]
    # Prompts are computed too: the length of a row is where its last token stands.
    there = batch.context.get("valid", batch.mask)
    columns = torch.arange(1, batch.num_columns + 1, device=there.device)
    length = (there * columns).amax(1).cpu()
    label = units(batch, together)
    # A unit is as long as its longest row, since it is one micro-batch's.
    longest = torch.zeros_like(length).scatter_reduce(0, label, length, "amax")[label]
    order = torch.argsort(longest * (len(batch) + 1) + label, descending=True, stable=True)
    found: list[list[int]] = []
    begin, room = 0, rows or len(batch)
    names, lengths = label[order].tolist(), longest[order].tolist()
    sizes = Counter(names)
    for place, name in enumerate(names):
        if place and name == names[place - 1]:
            continue  # placed with its unit's first row
        size = sizes[name]
        held = place - begin + size
        # All rows of a micro-batch are padded to its first, which is the longest.
        if found and (held > room or held * lengths[begin] > tokens):
            begin = place
        if begin == place:
            found.append([])
        found[-1] += order[place : place + size].tolist()
    return [torch.tensor(some) for some in found]


def by_reach(batch: Experience, together: frozenset[str], tokens: int, rows: int) -> list[Tensor]:
    """Returns row indices of micro-batches of at most `tokens` packed tokens, a shared prompt counted once in each,
    and at most `rows` rows (0: no limit); a unit that alone exceeds them is its own micro-batch. Rows with one prompt
    are neighbours; they are split where a micro-batch is full.
    """
    if not len(batch):
        return [torch.empty(0, dtype=torch.int64)]
    # Rows are placed by Python: on the device each number would be a transfer.
    home = batch.on_cpu
    needs = packing.reach(home.context["tokens"], home.mask, home.group)
    label = units(batch, together).numpy()
    # Units in the order of their first row's prompt; a unit's rows stay together.
    first = needs.label_B[label]
    order = np.lexsort((np.arange(len(batch)), label, first))
    found: list[list[int]] = []
    held, prompts = 0, set[int]()
    for unit in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        new = {int(needs.label_B[row]): int(needs.prompt_B[row]) for row in unit}
        own = int((needs.length_B - needs.prompt_B)[unit].sum())
        more = own + sum(size for name, size in new.items() if name not in prompts)
        if not found or held + more > tokens or (rows and len(found[-1]) + len(unit) > rows):
            found.append([])
            # A prompt that was counted in the last micro-batch is computed again in this one.
            held, prompts, more = 0, set(), own + sum(new.values())
        found[-1] += unit.tolist()
        held, prompts = held + more, prompts | new.keys()
    return [torch.tensor(some) for some in found]


def whole_units(batch: Experience, together: frozenset[str], size: int) -> Iterator[Tensor]:
    """Returns row indices of micro-batches of about `size` rows; equal values of the named columns stay together."""
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
