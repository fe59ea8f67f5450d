"""Log-probabilities of given tokens, fused with the output layer that computes their logits.

Axes: N tokens, W width, V vocabulary. With l = W h, p = softmax(l), chosen token c, gradient g of log p_c and e of
the entropy H:

    log p_c = l_c - log sum exp l,   H = log sum exp l - sum p l
    dl = g (1_c - p) - e p (log p + H),   dh = W^T dl,   dW = dl h^T

Logits are computed in blocks, in float32 or wider, and discarded: [N, V] is never in memory. The backward pass takes
any gradient and recomputes the logits, so that forward and backward are four products of 2 N V W operations; three
would suffice only with [N, V] kept or the gradient known beforehand. There are no second derivatives.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

AT_ONCE = 1 << 24
"""Logits that plain PyTorch computes at once."""
BLOCK, TOKENS = 4096, 8192
"""Words and tokens whose gradients are in memory at once on a GPU."""


About = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]
"""For each token: its id, log-sum-exp, gradient of its log-probability, gradient of its entropy, entropy."""


def given_logp(
    hidden_NW: Tensor, weight_VW: Tensor, token_N: Tensor, with_entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Returns (log-probability [N], entropy [N] if requested) of each token under the logits `weight @ hidden`.

    float32, or float64 if the inputs are. Assumes one dtype of both matrices and no bias; N = 0 gives empty tensors.
    """
    logp, entropy = GivenLogp.apply(hidden_NW, weight_VW, token_N, with_entropy)
    return logp, entropy if with_entropy else None


class GivenLogp(torch.autograd.Function):
    """`given_logp` with its own backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, token: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor]:
        """Computes with Triton if possible, else in plain PyTorch; keeps one number per token."""
        hidden, weight = hidden.contiguous(), weight.contiguous()
        measure = compiled().measured if is_fast(hidden, weight) else measured
        chosen, total, mean = measure(hidden, weight, token, with_entropy)
        entropy = total - mean if with_entropy else torch.zeros_like(total)
        ctx.save_for_backward(hidden, weight, token, total, entropy)
        ctx.with_entropy = with_entropy
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        return chosen - total, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, entropy_slope: Tensor | None) -> tuple[Tensor | None, ...]:
        """Recomputes the logits, block by block."""
        hidden, weight, token, total, entropy = ctx.saved_tensors
        about: About = (token, total, slope.to(total), entropy_slope if ctx.with_entropy else None, entropy)
        with_weight = ctx.needs_input_grad[1]
        if is_fast(hidden, weight):
            d_hidden, d_weight = by_words(hidden, weight, about, with_weight)
        else:
            d_hidden, d_weight = by_tokens(hidden, weight, about, with_weight)
        return d_hidden, d_weight, None, None


# ---------------------------------------------------------------------------------------------------- plain PyTorch
def measured(hidden: Tensor, weight: Tensor, token: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (chosen logit, log-sum-exp, mean logit if requested), each [N]."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    found = [torch.empty(0, 3, dtype=wide, device=hidden.device)]
    for some, chosen in chunks(hidden, weight, token):
        logits = products(some, weight)
        total = logits.logsumexp(-1)
        mean = ((logits - total.unsqueeze(1)).exp() * logits).sum(-1) if with_entropy else total
        found.append(torch.stack((logits.gather(1, chosen.unsqueeze(1)).squeeze(1), total, mean), 1))
    chosen, total, mean = torch.cat(found).unbind(1)
    return chosen, total, mean


def by_tokens(hidden: Tensor, weight: Tensor, about: About, with_weight: bool) -> tuple[Tensor, Tensor | None]:
    """Returns gradients of hidden states and weights by chunks of tokens; those of weights are summed in float32."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    d_hidden = torch.empty_like(hidden)
    d_weight = torch.zeros_like(weight, dtype=wide) if with_weight else None
    num = max(1, AT_ONCE // len(weight))
    for first in range(0, len(hidden), num):
        part = slice(first, first + num)
        some = hidden[part]
        slopes = logit_slopes(products(some, weight), *rows_of(about, part))
        slopes = slopes.to(hidden.dtype)
        torch.mm(slopes, weight, out=d_hidden[part])
        if d_weight is not None:
            d_weight += slopes.t() @ some
    return d_hidden, d_weight if d_weight is None else d_weight.to(weight.dtype)


def rows_of(about: About, part: slice) -> About:
    """Returns the same values for some of the tokens."""
    token, total, slope, entropy_slope, entropy = about
    return token[part], total[part], slope[part], None if entropy_slope is None else entropy_slope[part], entropy[part]


def logit_slopes(
    logits: Tensor, token: Tensor, total: Tensor, slope: Tensor, entropy_slope: Tensor | None, entropy: Tensor
) -> Tensor:
    """Returns dl of the formula above, [n, V]."""
    log_prob = logits.sub_(total.unsqueeze(1))
    factor = -slope.unsqueeze(1)
    if entropy_slope is not None:
        factor = factor - entropy_slope.unsqueeze(1) * (log_prob + entropy.unsqueeze(1))
    slopes = log_prob.exp_().mul_(factor) if entropy_slope is None else log_prob.exp() * factor
    return slopes.scatter_add_(1, token.unsqueeze(1), slope.unsqueeze(1).to(slopes.dtype))


def products(some: Tensor, weight: Tensor) -> Tensor:
    """Returns logits in float32 or wider; on a GPU they are not rounded in between."""
    if some.is_cuda and some.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(some, weight.t(), out_dtype=torch.float32)
    return torch.mm(some, weight.t()).to(torch.promote_types(some.dtype, torch.float32))


def chunks(hidden: Tensor, weight: Tensor, token: Tensor) -> Any:
    """Returns chunks of tokens whose logits are at most AT_ONCE numbers."""
    num = max(1, AT_ONCE // len(weight))
    return zip(hidden.split(num), token.split(num), strict=True) if len(hidden) else ()


# ---------------------------------------------------------------------------------------------------- on a GPU
@cache
def compiled() -> Any:
    """Imports the kernels; requires Triton."""
    from assay.ops import triton_output

    return triton_output


@cache
def has_triton() -> bool:
    """Returns whether the kernels can be imported."""
    try:
        return compiled() is not None
    except ImportError:
        return False


def is_fast(hidden: Tensor, weight: Tensor) -> bool:
    """Returns whether the kernels support these tensors: 16 bits on a GPU, rows that the copy engine can fetch."""
    fits = hidden.is_cuda and hidden.dtype in (torch.bfloat16, torch.float16) and hidden.dtype == weight.dtype
    aligned = hidden.shape[1] % 64 == 0 and hidden.data_ptr() % 16 == 0 and weight.data_ptr() % 16 == 0
    return fits and aligned and len(hidden) > 0 and has_triton()


def word_blocks(num: int, tile: int = 128) -> list[tuple[int, int]]:
    """Returns ranges of about BLOCK words, whole tiles except the last: no block is much smaller than the others."""
    tiles = -(-num // tile)
    many = max(1, round(num / BLOCK))
    edges = [tiles * place // many * tile for place in range(many)] + [num]
    return list(zip(edges, edges[1:], strict=False))


def by_words(hidden: Tensor, weight: Tensor, about: About, with_weight: bool) -> tuple[Tensor, Tensor | None]:
    """Returns gradients of hidden states and weights, a block of words at a time: each is summed in float32 and
    rounded once.

    Besides the results it needs 4 N W bytes for the sum, and the gradients of TOKENS x BLOCK.
    """
    num = TOKENS
    blocks = word_blocks(len(weight))
    widest = max(last - first for first, last in blocks)
    d_hidden = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
    d_weight = torch.empty_like(weight) if with_weight else None
    pitch = -(-widest // 64) * 64
    room = torch.empty(min(num, len(hidden)) * pitch, dtype=hidden.dtype, device=hidden.device)
    for first, last in blocks:
        words, summed = weight[first:last], None
        for start in range(0, len(hidden), num):
            part = slice(start, start + num)
            some = hidden[part]
            slopes = room[: len(some) * pitch].view(len(some), pitch)[:, : len(words)]
            compiled().slopes(some, words, *rows_of(about, part), first, slopes)
            add_product(d_hidden[part], slopes, words)
            if d_weight is not None and len(some) == len(hidden):
                torch.mm(slopes.t(), some, out=d_weight[first:last])
            elif summed is None:
                summed = torch.mm(slopes.t(), some, out_dtype=torch.float32) if with_weight else None
            else:
                add_product(summed, slopes.t(), some)
        if d_weight is not None and summed is not None:
            d_weight[first:last] = summed
    del room, slopes, summed
    return d_hidden.to(hidden.dtype), d_weight


def add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """Computes into += left @ right, the sum in float32."""
    torch.addmm(into, left, right, out_dtype=torch.float32, out=into)
