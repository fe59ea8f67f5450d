"""Several sequences in one row: who may attend to whom, and there and back again. Axes: B sequences, T tokens, R
rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def same_document_before(document_RT: Tensor) -> Tensor:
    """Bool [R, T, T]: token j is visible from token i (same document, not later)."""
    same = document_RT.unsqueeze(2) == document_RT.unsqueeze(1)
    length = document_RT.shape[1]
    return same & torch.ones(length, length, dtype=torch.bool, device=document_RT.device).tril()


def places(length_B: Tensor, row_length: int) -> tuple[Tensor, Tensor, int]:
    """First-fit in order of decreasing length: (row [B], offset [B], number of rows)."""
    lengths = length_B.tolist()
    longest = max([row_length, *lengths])
    used: list[int] = []
    row, offset = [0] * len(lengths), [0] * len(lengths)
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fit = next((r for r, filled in enumerate(used) if filled + lengths[index] <= longest), len(used))
        if fit == len(used):
            used.append(0)
        row[index], offset[index] = fit, used[fit]
        used[fit] += lengths[index]
    return torch.tensor(row), torch.tensor(offset), len(used)


def through_packed(
    trunk: Callable[[Tensor, Tensor, Tensor], Tensor], tokens_BT: Tensor, valid_BT: Tensor, row_length: int
) -> Tensor:
    """`trunk(tokens, position, document)` on packed rows, put back to [B, T, ...]; zeros where not valid."""
    lengths = valid_BT.sum(1)
    row, offset, num_rows = places(lengths, row_length)
    width = max(row_length, int(lengths.max()))
    sequence, position = valid_BT.nonzero(as_tuple=True)
    rank = valid_BT.long().cumsum(1)[sequence, position] - 1
    at = (row.to(tokens_BT.device)[sequence], offset.to(tokens_BT.device)[sequence] + rank)
    packed = tokens_BT.new_zeros(num_rows, width)
    document = tokens_BT.new_full((num_rows, width), -1)
    places_in_document = tokens_BT.new_zeros(num_rows, width)
    packed[at], document[at], places_in_document[at] = tokens_BT[sequence, position], sequence, rank
    hidden = trunk(packed, places_in_document, document)
    result = hidden.new_zeros(*tokens_BT.shape, *hidden.shape[2:])
    return result.index_put((sequence, position), hidden[at])
