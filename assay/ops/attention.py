"""What one layer's attention computes besides products, and that computation in plain PyTorch.

Axes: H query heads, K key heads, T queries, S keys, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, eq=False)
class Attention:
    """Scores are `scale` q k, made cap * tanh(score / cap) where `cap` is not 0, of the last `window` tokens, the
    query's own included (0: of all); `sinks` [H] are scores that take probability and have no value.
    """

    scale: float
    window: int = 0
    cap: float = 0.0
    sinks: Tensor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether kernels for causal attention compute all of it."""
        return not self.window and self.is_product

    @property
    def is_product(self) -> bool:
        """Whether it is a softmax of products, over whatever tokens."""
        return not self.cap and self.sinks is None

    def capped(self, score: Tensor) -> Tensor:
        """Returns scores from scaled products."""
        return self.cap * torch.tanh(score / self.cap) if self.cap else score

    def within(self, distance: Tensor) -> Tensor:
        """Returns whether a token is visible at this distance, 0 for the query's own; negative ones are later."""
        return (distance >= 0) & (distance < self.window) if self.window else distance >= 0


def attend(query_HTD: Tensor, key_KSD: Tensor, value_KSD: Tensor, allowed_TS: Tensor, how: Attention) -> Tensor:
    """Returns [..., H, T, D] over the allowed keys, of which each query has one at least; scores in float32 or wider.

    share_s = exp(score_s) / (sum_j exp(score_j) + exp(sink)).
    """
    grouped = query_HTD.shape[-3] != key_KSD.shape[-3]
    if how.is_product:
        return functional.scaled_dot_product_attention(
            query_HTD, key_KSD, value_KSD, attn_mask=allowed_TS, scale=how.scale, enable_gqa=grouped
        )
    many = query_HTD.shape[-3] // key_KSD.shape[-3]
    key, value = (some.repeat_interleave(many, -3) for some in (key_KSD, value_KSD))
    product = (query_HTD @ key.transpose(-1, -2)).to(torch.promote_types(query_HTD.dtype, torch.float32))
    score = how.capped(product * how.scale).masked_fill(~allowed_TS, -torch.inf)
    total = score.logsumexp(-1, keepdim=True)
    if how.sinks is not None:
        total = torch.logaddexp(total, how.sinks.to(total).view(-1, 1, 1))
    return torch.exp(score - total).to(value.dtype) @ value
