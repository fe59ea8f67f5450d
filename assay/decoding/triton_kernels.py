"""The kernels themselves; imported only on a machine with Triton. See `kernels` for the axes and the arithmetic.

Axes: N rows, H heads, D numbers of a head, C clusters, M members of one.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.decoding.triton_draws import choose, look, narrowed, note, power, total_of

__all__ = ["attend", "choose", "gated", "look", "narrowed", "note", "place_heads", "rms_norm", "total_of"]

WARPS, STAGES = 4, 2


# ---------------------------------------------------------------------------------------------------- small parts
@triton.jit
def rms_norm_kernel(
    x: tl.tensor, weight: tl.tensor, out: tl.tensor, epsilon: tl.tensor, width: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / width + epsilon)
    factor = tl.load(weight + column, mask=inside, other=0.0)
    tl.store(out + row * width + column, (wide * scale).to(value.dtype) * factor, mask=inside)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """One program a row."""
    x = x.contiguous()
    out, width = torch.empty_like(x), x.shape[-1]
    rms_norm_kernel[(x.numel() // width,)](x, weight, out, epsilon, width, power(width), num_warps=4)
    return out


@triton.jit
def turned_heads(
    x: tl.tensor, weight: tl.tensor, cosine: tl.tensor, sine: tl.tensor, place: tl.tensor, normed: tl.constexpr,
    epsilon: tl.tensor, half: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Two halves of heads, normed where asked, turned; in float32."""
    column = tl.arange(0, half)[None, :]
    first, second = tl.load(x + place + column), tl.load(x + place + half + column)
    kind = first.dtype
    first, second = first.to(tl.float32), second.to(tl.float32)
    if normed:
        square = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        scale = tl.rsqrt(square / (2 * half) + epsilon)[:, None]
        first = (first * scale).to(kind) * tl.load(weight + column)
        second = (second * scale).to(kind) * tl.load(weight + half + column)
        first, second = first.to(tl.float32), second.to(tl.float32)
    return first * cosine - second * sine, second * cosine + first * sine


@triton.jit
def place_heads_kernel(
    query: tl.tensor, key: tl.tensor, value: tl.tensor, query_weight: tl.tensor, key_weight: tl.tensor,
    epsilon: tl.tensor, cos: tl.tensor, sin: tl.tensor, keys: tl.tensor, values: tl.tensor, page_of: tl.tensor,
    offset_of: tl.tensor, out: tl.tensor, query_stride: tl.tensor, key_stride: tl.tensor, value_stride: tl.tensor,
    heads: tl.constexpr, key_heads: tl.constexpr, wide: tl.constexpr, key_wide: tl.constexpr, size: tl.constexpr,
    page: tl.constexpr, normed: tl.constexpr,
) -> None:  # fmt: skip
    """One (row, kind): queries are turned into `out`, keys turned and values as they are into their page."""
    row, kind = tl.program_id(0).to(tl.int64), tl.program_id(1)
    half: tl.constexpr = size // 2
    column = tl.arange(0, half)[None, :]
    cosine = tl.load(cos + row * size + column).to(tl.float32)
    sine = tl.load(sin + row * size + column).to(tl.float32)
    where = tl.load(page_of + row).to(tl.int64) * page + tl.load(offset_of + row)
    if kind == 0:
        head = tl.arange(0, wide)
        inside = (head < heads)[:, None]
        near = tl.minimum(head, heads - 1)[:, None] * size
        place = row * heads * size + near
        first, second = turned_heads(
            query + row * query_stride, query_weight, cosine, sine, near, normed, epsilon, half
        )
        tl.store(out + place + column, first, mask=inside)
        tl.store(out + place + half + column, second, mask=inside)
    else:
        key_head = tl.arange(0, key_wide)
        there = (key_head < key_heads)[:, None]
        source = tl.minimum(key_head, key_heads - 1)[:, None] * size
        target = (where * key_heads + tl.minimum(key_head, key_heads - 1))[:, None] * size
        if kind == 1:
            low, high = turned_heads(key + row * key_stride, key_weight, cosine, sine, source, normed, epsilon, half)
            tl.store(keys + target + column, low, mask=there)
            tl.store(keys + target + half + column, high, mask=there)
        else:
            begin = value + row * value_stride + source
            tl.store(values + target + column, tl.load(begin + column), mask=there)
            tl.store(values + target + half + column, tl.load(begin + half + column), mask=there)


def place_heads(
    heads: tuple[Tensor, Tensor, Tensor], norms: tuple[Tensor, Tensor] | None, epsilon: float,
    angles: tuple[Tensor, Tensor], keys: Tensor, values: Tensor, page: Tensor, offset: Tensor,
) -> Tensor:  # fmt: skip
    """Normed and turned queries [N, H, D]; keys and values go into their pages."""
    query, key, value = heads
    num, many, size = query.shape
    out = torch.empty(num, many, size, dtype=query.dtype, device=query.device)
    few = key.shape[1]
    weights = (query, query) if norms is None else norms
    cos, sin = (some.contiguous() for some in angles)
    place_heads_kernel[(num, 3)](
        query, key, value, *weights, epsilon, cos, sin, keys, values, page, offset, out,
        query.stride(0), key.stride(0), value.stride(0), many, few,
        power(many), power(few), size, keys.shape[1], norms is not None, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def gated_kernel(
    gate: tl.tensor, up: tl.tensor, out: tl.tensor, gate_stride: tl.tensor, up_stride: tl.tensor, width: tl.tensor,
    block: tl.constexpr,
) -> None:  # fmt: skip
    """One block of one row."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    value = tl.load(gate + row * gate_stride + column, mask=inside, other=0.0)
    wide = value.to(tl.float32)
    act = (wide * tl.sigmoid(wide)).to(value.dtype)
    other = tl.load(up + row * up_stride + column, mask=inside, other=0.0)
    tl.store(out + row * width + column, act * other, mask=inside)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Row by row; both may be halves of one tensor."""
    num, width = gate.shape
    out = torch.empty(num, width, dtype=gate.dtype, device=gate.device)
    gated_kernel[(num, triton.cdiv(width, 1024))](gate, up, out, gate.stride(0), up.stride(0), width, 1024, num_warps=4)
    return out


# ---------------------------------------------------------------------------------------------------- attention
@triton.jit
def attend_kernel(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, rows: tl.tensor, tables: tl.tensor, table_of: tl.tensor,
    lengths: tl.tensor, length_of: tl.tensor, out: tl.tensor, total: tl.tensor, merged: tl.tensor, scale: tl.tensor,
    parts: tl.tensor, slot: tl.tensor, members: tl.constexpr, group: tl.constexpr, heads: tl.constexpr,
    size: tl.constexpr, page: tl.constexpr, pages: tl.constexpr, tile: tl.constexpr, splits: tl.constexpr,
    exact: tl.constexpr, goes_on: tl.constexpr,
) -> None:  # fmt: skip
    """One (cluster, key head, split): `members` rows x `group` queries against the keys of one table row.

    rows [C, members] are places in the batch (-1: none); table_of and length_of [C] say whose pages and how many keys.
    A part goes to `out` and `total`; what `goes_on` begins with the only part there and is all of it, in `merged`.
    """
    cluster, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_keys_heads = heads // group
    line = tl.arange(0, tile)
    member, inner = line // group, line % group
    row = tl.load(rows + cluster * members + member, mask=member < members, other=-1)
    there = (row >= 0) & (member < members)
    column = tl.arange(0, size)
    where = (row * heads + head * group + inner).to(tl.int64)
    q = tl.load(query + where[:, None] * size + column[None, :], mask=there[:, None], other=0.0)
    whose = tl.load(table_of + cluster).to(tl.int64)
    length = tl.load(lengths + tl.load(length_of + cluster))
    if goes_on:
        highest = tl.load(total + where, mask=there, other=-float("inf"))
        summed = tl.where(highest > -float("inf"), 1.0, 0.0)
        result = tl.load(out + where[:, None] * size + column[None, :], mask=there[:, None], other=0.0)
    else:
        highest = tl.full((tile,), -float("inf"), tl.float32)
        summed = tl.zeros((tile,), tl.float32)
        result = tl.zeros((tile, size), tl.float32)
    inside = tl.arange(0, page)
    for first in range(split * page, length, splits * page):
        which = tl.load(tables + whose * pages + first // page).to(tl.int64)
        base = ((which * page + inside) * num_keys_heads + head) * size
        seen = first + inside < length
        k = tl.load(keys + base[:, None] + column[None, :], mask=seen[:, None], other=0.0)
        if exact:
            score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        else:
            score = tl.dot(q, tl.trans(k)) * scale
        score = tl.where(seen[None, :], score, -float("inf"))
        top = tl.maximum(highest, tl.max(score, 1))
        share = tl.exp(score - top[:, None])
        shrink = tl.exp(highest - top)
        v = tl.load(values + base[:, None] + column[None, :], mask=seen[:, None], other=0.0)
        if exact:
            new = tl.dot(share, v, input_precision="ieee")
        else:
            new = tl.dot(share.to(v.dtype), v)
        result = result * shrink[:, None] + new
        summed = summed * shrink + tl.sum(share, 1)
        highest = top
    some = summed > 0
    safe = tl.where(some, summed, 1.0)
    if goes_on:
        whole = (result / safe[:, None]).to(merged.dtype.element_ty)
        tl.store(merged + where[:, None] * size + column[None, :], whole, mask=there[:, None])
    else:
        place = where * parts + slot + split
        tl.store(out + place[:, None] * size + column[None, :], result / safe[:, None], mask=there[:, None])
        tl.store(total + place, tl.where(some, highest + tl.log(safe), -float("inf")), mask=there)


@triton.jit
def merge_kernel(
    out: tl.tensor, total: tl.tensor, merged: tl.tensor, parts: tl.tensor, wide: tl.constexpr, size: tl.constexpr,
) -> None:  # fmt: skip
    """One head of one row."""
    place = tl.program_id(0).to(tl.int64)
    part, column = tl.arange(0, wide), tl.arange(0, size)
    there = part < parts
    some = tl.load(total + place * parts + part, mask=there, other=-float("inf"))
    top = tl.max(some, 0)
    weight = tl.where(there, tl.exp(some - top), 0.0)
    each = tl.load(out + (place * parts + part[:, None]) * size + column[None, :], mask=there[:, None], other=0.0)
    result = tl.sum(each * weight[:, None], 0) / tl.sum(weight, 0)
    tl.store(merged + place * size + column, result.to(merged.dtype.element_ty))


def attend(query: Tensor, keys: Tensor, values: Tensor, shared: Any, own: Any, scale: float, splits: int) -> Tensor:
    """Attention of N rows over the prompt's pages (once a cluster) and their own: [N, H, D] in the query's type.

    `shared` and `own` are (rows [C, M], tables, table_of, lengths, length_of). Own keys that are not split follow
    the prompt's part, so that nothing is left to merge.
    """
    query = query.contiguous()
    num, heads, size = query.shape
    group, page = heads // keys.shape[2], keys.shape[1]
    is_split = splits > 1
    parts = 1 + splits if is_split else 1
    out = torch.empty(num, heads, parts, size, dtype=torch.float32, device=query.device)
    total = torch.empty(num, heads, parts, dtype=torch.float32, device=query.device)
    merged, exact = torch.empty_like(query), query.dtype == torch.float32
    for slot, ((rows, tables, table_of, lengths, length_of), pieces) in enumerate(((shared, 1), (own, splits))):
        members = rows.shape[1]
        attend_kernel[(len(rows), keys.shape[2], pieces)](
            query, keys, values, rows, tables, table_of, lengths, length_of, out, total, merged, scale, parts, slot,
            members, group, heads, size, page, tables.shape[1], max(16, power(members * group)), pieces, exact,
            bool(slot) and not is_split, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
    if is_split:
        merge_kernel[(num * heads,)](out, total, merged, parts, power(parts), size, num_warps=1)
    return merged
