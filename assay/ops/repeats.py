"""Rows of a matrix that are taken several times, with a gradient that adds up in a fixed order.

Axes: N rows, D rows taken, W width, P rows that are taken several times, C times that one is taken at most.

`index_select` adds the gradients of a row's copies in the order in which a GPU's threads arrive, each sum rounded: two
equal calls differ in their last bits. The state after a shared prompt is taken once for every member of its group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Repeats:
    """Where each row is taken: `row_S` once, at `place_S`; `row_P` several times, at `place_PC`, padded with -1."""

    row_S: Tensor
    place_S: Tensor
    row_P: Tensor
    place_PC: Tensor


def repeats_of(index_D: Tensor) -> Repeats:
    """Returns the repeats of an index on the CPU."""
    index = index_D.numpy()
    order = np.argsort(index, kind="stable")
    row, begin, count = np.unique(index[order], return_index=True, return_counts=True)
    is_once = count == 1
    column = np.arange(int(count.max(initial=1)))
    where = begin[~is_once][:, None] + column
    place = np.where(column < count[~is_once][:, None], order[np.minimum(where, max(0, len(order) - 1))], -1)
    return Repeats(*map(torch.from_numpy, (row[is_once], order[begin[is_once]], row[~is_once], place)))


def taken(states_NW: Tensor, index_D: Tensor, repeats: Repeats) -> Tensor:
    """Returns states_NW[index_D]; `repeats` are those of the index, on the device of the states."""
    if not len(repeats.row_P):
        return states_NW.index_select(0, index_D)  # every row at most once: no order to fix
    found: Tensor = Taken.apply(states_NW, index_D, repeats)
    return found


class Taken(torch.autograd.Function):
    """`taken` with its own backward pass."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, index: Tensor, repeats: Repeats) -> Tensor:
        """Selects the rows."""
        ctx.save_for_backward(repeats.row_S, repeats.place_S, repeats.row_P, repeats.place_PC)
        ctx.num = len(states)
        return states.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope_DW: Tensor) -> tuple[Tensor, None, None]:
        """Copies the gradients of rows taken once; adds up those of the others over C, rounded once."""
        row, place, many, places = ctx.saved_tensors
        found = slope_DW.new_zeros(ctx.num, slope_DW.shape[1])
        found.index_copy_(0, row, slope_DW.index_select(0, place))
        copies = slope_DW.index_select(0, places.clamp(min=0).view(-1)).unflatten(0, places.shape)
        found.index_copy_(0, many, copies.masked_fill((places < 0).unsqueeze(-1), 0.0).sum(1))
        return found, None, None
