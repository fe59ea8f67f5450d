"""One number for each row from the log-probabilities of its tokens. Axes: B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Reduce = Callable[[Tensor, Tensor], Tensor]
"""(log-probabilities [B, T], bool [B, T]: which tokens count) -> [B]; rows without a token get a finite number."""


def mean_probability(logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns mean_t p_t: one unlikely token costs 1 / length."""
    return (logp_BT.exp() * mask_BT).sum(1) / mask_BT.sum(1).clamp(min=1)


def likelihood(logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns prod_t p_t: one unlikely token costs everything."""
    return torch.where(mask_BT, logp_BT, 0.0).sum(1).exp()


def geometric_mean(logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns (prod_t p_t)^(1 / length)."""
    return (torch.where(mask_BT, logp_BT, 0.0).sum(1) / mask_BT.sum(1).clamp(min=1)).exp()
