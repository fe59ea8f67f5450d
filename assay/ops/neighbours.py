"""Nearest rows of a table, by Euclidean distance. Axes: N rows, K keys, D numbers, C candidates."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 65_536
"""Rows that are compared with all keys at once."""
CANDIDATES = 4
"""Rows of a block whose distance is computed again, without rounding errors of large products."""


def nearest(rows_ND: Tensor, keys_KD: Tensor, block: int = BLOCK) -> Tensor:
    """Returns the index of the nearest row to each key, [K]; of equally near rows any.

    |row|^2 - 2 row . key ranks the rows of a block in one product of matrices; the first few are then measured. The
    memory is that of one block, whatever the table. Degenerate: a table of one row is nearest to everything.
    """
    # Around their mean, since the squares of large numbers hide small differences.
    rows_ND, keys_KD = rows_ND - (middle := rows_ND.mean(0)), keys_KD - middle
    best = keys_KD.new_full((len(keys_KD),), torch.inf)
    index = torch.zeros(len(keys_KD), dtype=torch.long, device=keys_KD.device)
    for start in range(0, len(rows_ND), block):
        rows = rows_ND[start : start + block]
        rank_KN = torch.addmm(rows.square().sum(-1), keys_KD, rows.T, alpha=-2.0)
        places_KC = rank_KN.topk(min(CANDIDATES, len(rows)), dim=-1, largest=False).indices
        gap, which = (rows[places_KC] - keys_KD.unsqueeze(1)).square().sum(-1).min(-1)
        found = start + places_KC.gather(1, which.unsqueeze(1)).squeeze(1)
        index, best = torch.where(gap < best, found, index), torch.minimum(gap, best)
    return index
