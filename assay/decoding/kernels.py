"""Triton kernels for decoding on a GPU, and the same arithmetic in plain PyTorch for other devices.

Axes: N rows that decode together, H query heads, K key heads, R = H / K queries per key head, D head size, V
vocabulary, C clusters of rows with one prompt, M rows of a cluster, S parts of a row's keys.

Keys and values are in pages of `page` tokens, [pages, page, K, D]; the pages of a row's own tokens are listed in its
row of a page table, and rows of one prompt share the prompt's pages. Attention is computed in parts, each with its
log-sum-exp: the prompt's keys once for a whole cluster, a row's own keys in S strided parts; `merge` combines them
exactly:

    out = sum_i exp(l_i - l) out_i,   l = log sum_i exp(l_i)
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from assay.ops.attention import Attention, attend


@cache
def compiled() -> Any:
    """Imports the kernels; requires Triton."""
    from assay.decoding import triton_kernels

    return triton_kernels


# ---------------------------------------------------------------------------------------------------- small parts
def rms_norm(x_NW: Tensor, weight_W: Tensor, epsilon: float, shift: float = 0.0, is_wide: bool = False) -> Tensor:
    """Returns (shift + weight) * x / sqrt(mean x^2 + epsilon), the mean in float32; the product too if `is_wide`."""
    if x_NW.is_cuda and not is_wide and not shift:
        normed: Tensor = compiled().rms_norm(x_NW, weight_W, epsilon)
        return normed
    # As the networks' own code does: otherwise sampled and trained log-probabilities differ.
    wide = x_NW.to(torch.promote_types(x_NW.dtype, torch.float32))
    if is_wide:
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
        return (scaled * (shift + weight_W.to(wide))).to(x_NW.dtype)
    weight_W = shift + weight_W if shift else weight_W
    return weight_W * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x_NW.dtype)


def turned(heads_NHD: Tensor, cos_ND: Tensor, sin_ND: Tensor) -> Tensor:
    """Applies rotary positions on halves (Llama's order): x * cos + (-x_2, x_1) * sin."""
    first, second = heads_NHD.chunk(2, -1)
    return heads_NHD * cos_ND.unsqueeze(1) + torch.cat((-second, first), -1) * sin_ND.unsqueeze(1)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Returns silu(gate) * up."""
    if gate.is_cuda:
        result: Tensor = compiled().gated(gate, up)
        return result
    return torch.nn.functional.silu(gate) * up


# ---------------------------------------------------------------------------------------------------- attention
class Seen(NamedTuple):
    """Keys that N rows see: the pages that hold them [N, P], how many keys there are [N], and the place of each row's
    query among these keys [N], which is beyond the last of a prompt.
    """

    table: Tensor
    length: Tensor
    query: Tensor


def attend_all(query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
    """Computes causal attention of whole prompts, [G, H, T, D]."""
    longest = query.shape[2]
    if how.is_product and (not how.window or how.window >= longest):
        whole = torch.nn.functional.scaled_dot_product_attention
        return whole(query, key, value, is_causal=True, scale=how.scale, enable_gqa=query.shape[1] != key.shape[1])
    time = torch.arange(longest, device=query.device)
    return attend(query, key, value, how.within(time.unsqueeze(1) - time), how)


def attend_pages(query_NHD: Tensor, keys: Tensor, values: Tensor, shared: Seen, own: Seen, how: Attention) -> Tensor:
    """Returns the attention of N rows over a prompt's pages and their own, [N, H, D]; plain PyTorch."""
    parts = [attend_parts(query_NHD, keys, values, seen, how) for seen in (shared, own)]
    if how.sinks is not None:  # a part without values
        sink = how.sinks.to(parts[0][1]).expand_as(parts[0][1])
        parts.append((torch.zeros_like(parts[0][0]), sink))
    return merge(parts).to(query_NHD.dtype)


def attend_parts(query_NHD: Tensor, keys: Tensor, values: Tensor, seen: Seen, how: Attention) -> tuple[Tensor, Tensor]:
    """Returns (out [N, H, D] in float32, log-sum-exp [N, H]) over the keys of each row's pages that it sees; plain
    PyTorch.

    A row without keys gives 0 and minus infinity.
    """
    num, heads, size = len(query_NHD), query_NHD.shape[1], keys.shape[1]
    wide = torch.promote_types(query_NHD.dtype, torch.float32)
    table, place = seen.table, torch.arange(seen.table.shape[1] * size, device=query_NHD.device)
    visible = place < seen.length.unsqueeze(1)
    if how.window:
        table, place = last_pages(seen, how.window, size)
        visible = (place < seen.length.unsqueeze(1)) & how.within(seen.query.unsqueeze(1) - place)
    key = keys[table].flatten(1, 2).to(wide)
    value = values[table].flatten(1, 2).to(wide)
    group = heads // key.shape[2]
    query = query_NHD.to(wide).view(num, key.shape[2], group, -1)
    score = how.capped(torch.einsum("nkrd,nskd->nkrs", query, key) * how.scale)
    score = score.masked_fill(~visible[:, None, None], -torch.inf)
    total = score.logsumexp(-1)
    # A row without keys has total minus infinity, and -inf - -inf is NaN.
    share = torch.exp(score - total.nan_to_num(neginf=0.0).unsqueeze(-1))
    out = torch.einsum("nkrs,nskd->nkrd", share, value)
    return out.reshape(num, heads, -1), total.reshape(num, heads)


def last_pages(seen: Seen, window: int, size: int) -> tuple[Tensor, Tensor]:
    """Returns (pages [N, P], places of their keys [N, P * size]) in which the last `window` keys before the query are;
    a page beyond the table has places beyond any length.
    """
    most = seen.table.shape[1]
    num = min(most, -(-window // size) + 1)  # a window may begin inside a page
    first = (seen.query + 1 - window).clamp(min=0) // size
    which = first.unsqueeze(1) + torch.arange(num, device=first.device)
    place = which.unsqueeze(2) * size + torch.arange(size, device=first.device)
    return seen.table.gather(1, which.clamp(max=most - 1)), place.flatten(1)


def merge(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Returns attention over all keys from attention over parts of them, [N, H, D]."""
    total = torch.stack([part for _, part in parts]).logsumexp(0)
    return sum((torch.exp(some - total).unsqueeze(-1) * out for out, some in parts), torch.zeros(()).to(total))


# ---------------------------------------------------------------------------------------------------- sampling
class Changed(Protocol):
    """The sampling parameters; see `sampling_parameters.Narrowing`."""

    @property
    def changes(self) -> bool:
        """Whether the tokens come from a distribution other than the model's."""

    @property
    def temperature(self) -> float:
        """The divisor of the logits."""

    @property
    def top_k(self) -> int:
        """Number of tokens to keep; 0 for all."""

    @property
    def top_p(self) -> float:
        """Share of probability to keep."""

    @property
    def min_p(self) -> float:
        """Minimum probability of a kept token, as a share of the likeliest."""


def narrowed(logits_NV: Tensor, how: Changed) -> Tensor:
    """Returns (l - max l) / temperature, minus infinity for removed tokens; its softmax is the distribution to sample
    from.

    A token is kept if its scaled logit is not below a threshold, found by sorting here, and digit by digit of the
    number's bits in a kernel on a GPU. The likeliest tokens are always kept.
    """
    if logits_NV.is_cuda:
        kept: Tensor = compiled().narrowed(logits_NV, how.temperature, how.top_k, how.top_p, how.min_p)
        return kept
    # The maximum is taken off first: temperature near 0 would overflow otherwise.
    scaled = (logits_NV - logits_NV.amax(-1, keepdim=True)) * (1.0 / how.temperature)
    lowest = torch.full_like(scaled[:, :1], math.log(how.min_p) if how.min_p > 0 else -math.inf)
    if 0 < how.top_k < scaled.shape[1]:
        lowest = torch.maximum(lowest, (of_k := scaled.topk(how.top_k).values[:, -1:]))
        # Before top-p: its share is of what top-k has left.
        scaled = scaled.masked_fill(scaled < of_k, -torch.inf)
    if how.top_p < 1.0:
        ordered = scaled.sort(-1, descending=True).values
        mass = ordered.exp().cumsum(-1)
        last = torch.searchsorted(mass, how.top_p * mass[:, -1:]).clamp(max=scaled.shape[1] - 1)
        lowest = torch.maximum(lowest, ordered.gather(1, last))
    return scaled.masked_fill(scaled < lowest, -torch.inf)


def total_of(logits_NV: Tensor) -> Tensor:
    """Returns log sum exp of each row."""
    if logits_NV.is_cuda:
        total: Tensor = compiled().total_of(logits_NV)
        return total
    return logits_NV.logsumexp(-1)


def choose(logits_NV: Tensor, uniform_N: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns (token, its log-probability): the first token at which the cumulative distribution exceeds the uniform
    number, the likeliest without uniform numbers; never one of probability 0.
    """
    logits = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    if logits.is_cuda and uniform_N is not None:
        token, logp = compiled().choose(logits, uniform_N)
        return token, logp
    total = logits.logsumexp(-1)
    if uniform_N is None:
        token = logits.argmax(-1)
    else:
        summed = torch.exp(logits - total.unsqueeze(-1)).cumsum(-1)
        # Rounding ends the sum a little beside 1: the target is scaled to it, so that no token is out of reach.
        last = summed[:, -1]
        target = (uniform_N.to(summed) * last).clamp(min=torch.finfo(summed.dtype).tiny)  # at 0 the first possible
        token = torch.searchsorted(summed, torch.minimum(target, last).unsqueeze(1)).squeeze(1)
    return token, logits.gather(1, token.unsqueeze(1)).squeeze(1) - total


def draw_tokens(logits_NV: Tensor, uniform_N: Tensor | None, how: Changed | None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (token, its log-probability as sampled, under the model itself): `choose` with the parameters `how`."""
    if how is None:
        token, logp = choose(logits_NV, uniform_N)
        return token, logp, logp
    logits = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    token, logp = choose(narrowed(logits, how), uniform_N)
    return token, logp, logits.gather(1, token.unsqueeze(1)).squeeze(1) - total_of(logits)


def note(
    place: Tensor, records: list[tuple[Tensor, Tensor]], result: Tensor, time: Tensor, done: Tensor, last: Tensor,
    limit: Tensor, eos: int,
) -> None:  # fmt: skip
    """Records the tokens that the rows at `place` chose and advances their time; `records` are (table [B, N],
    values): tokens, log-probabilities, and those of the model itself if they differ. Finished rows write to the
    padding row.
    """
    which, when, over, token = result[place], time[place], done[place], records[0][1]
    for table, value in records:
        rows, columns = table.shape
        table[which.masked_fill(over, rows - 1), when.masked_fill(over, columns - 1)] = value.to(table.dtype)
    last[place] = token
    time[place] = when + ~over
    done[place] = over | (token == eos) | (when + 1 >= limit[which])
