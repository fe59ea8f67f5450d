"""Values on trees of rollouts. Axes: B rows, N nodes.

A row is an edge: it starts at the node `parent` and leads to the node `branch`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def backed_up(reward_B: Tensor, counts_B: Tensor, parent_B: Tensor, branch_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (worth [B], value of the parent [B], known [B]) of every edge.

    worth = reward + V(branch);  V(node) = mean worth of the counted edges that start at it, 0 without any. `counts_B`
    [B] bool marks the edges that enter that mean. Degenerate: an edge below which all rollouts were lost is not known
    and enters no mean.
    """
    num = len(reward_B)
    distinct, index = torch.unique(torch.cat([parent_B, branch_B]), return_inverse=True)
    above, below = index[:num], index[num:]
    is_inner = torch.zeros(len(distinct), dtype=torch.bool, device=reward_B.device).index_fill_(0, above, True)
    known, worth = torch.ones_like(counts_B), reward_B
    value = reward_B.new_zeros(len(distinct))
    for _ in range(len(distinct)):
        share = (counts_B & known).to(reward_B.dtype)
        weight = reward_B.new_zeros(len(distinct)).index_add_(0, above, share)
        value = reward_B.new_zeros(len(distinct)).index_add_(0, above, share * worth) / weight.clamp(min=1)
        settled, now = reward_B + value[below], ~is_inner[below] | (weight[below] > 0)
        if torch.equal(settled, worth) and torch.equal(now, known):
            break
        worth, known = settled, now
    return worth, value[above], known & (weight[above] > 0)
