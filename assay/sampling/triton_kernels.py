"""The kernels themselves; imported only on a machine with Triton. See `kernels` for the axes and the arithmetic."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def power(number: int) -> int:
    """The next power of two."""
    return int(triton.next_power_of_2(number))


# ---------------------------------------------------------------------------------------------------- small parts
@triton.jit
def rms_norm_kernel(x, weight, out, epsilon, width: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
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
def turned_kernel(x, cos, sin, out, heads: tl.constexpr, size: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, heads)[:, None]
    half: tl.constexpr = size // 2
    column = tl.arange(0, half)[None, :]
    first = tl.load(x + (row * heads + head) * size + column).to(tl.float32)
    second = tl.load(x + (row * heads + head) * size + half + column).to(tl.float32)
    cosine = tl.load(cos + row * size + column).to(tl.float32)
    sine = tl.load(sin + row * size + column).to(tl.float32)
    tl.store(out + (row * heads + head) * size + column, first * cosine - second * sine)
    tl.store(out + (row * heads + head) * size + half + column, second * cosine + first * sine)


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """One program a row; cos and sin repeat in both halves."""
    heads = heads.contiguous()
    out = torch.empty_like(heads)
    turned_kernel[(len(heads),)](heads, cos.contiguous(), sin.contiguous(), out, heads.shape[1], heads.shape[2])
    return out


@triton.jit
def gated_kernel(gate, up, out, num, block: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < num
    value = tl.load(gate + place, mask=inside, other=0.0)
    wide = value.to(tl.float32)
    act = (wide * tl.sigmoid(wide)).to(value.dtype)
    tl.store(out + place, act * tl.load(up + place, mask=inside, other=0.0), mask=inside)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Elementwise."""
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    gated_kernel[(triton.cdiv(gate.numel(), 2048),)](gate, up, out, gate.numel(), 2048)
    return out


# ---------------------------------------------------------------------------------------------------- attention
@triton.jit
def attend_kernel(  # type: ignore[no-untyped-def]
    query, keys, values, rows, tables, table_of, lengths, length_of, out, total, scale, parts, slot,
    members: tl.constexpr, group: tl.constexpr, heads: tl.constexpr, size: tl.constexpr, page: tl.constexpr,
    pages: tl.constexpr, tile: tl.constexpr, splits: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    """One (cluster, key head, split): `members` rows x `group` queries against the keys of one table row.

    rows [C, members] are places in the batch (-1: none); table_of and length_of [C] say whose pages and how many keys.
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
    place = where * parts + slot + split
    tl.store(out + place[:, None] * size + column[None, :], result / safe[:, None], mask=there[:, None])
    tl.store(total + place, tl.where(some, highest + tl.log(safe), -float("inf")), mask=there)


@triton.jit
def merge_kernel(  # type: ignore[no-untyped-def]
    out, total, merged, parts, wide: tl.constexpr, size: tl.constexpr
):
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

    `shared` and `own` are (rows [C, M], tables, table_of, lengths, length_of).
    """
    query = query.contiguous()
    num, heads, size = query.shape
    group, page = heads // keys.shape[2], keys.shape[1]
    parts = 1 + splits
    out = torch.empty(num, heads, parts, size, dtype=torch.float32, device=query.device)
    total = torch.empty(num, heads, parts, dtype=torch.float32, device=query.device)
    exact = query.dtype == torch.float32
    for slot, ((rows, tables, table_of, lengths, length_of), pieces) in enumerate(((shared, 1), (own, splits))):
        members = rows.shape[1]
        attend_kernel[(len(rows), keys.shape[2], pieces)](
            query, keys, values, rows, tables, table_of, lengths, length_of, out, total, scale, parts, slot,
            members, group, heads, size, page, tables.shape[1], max(16, power(members * group)), pieces, exact,
            num_warps=4, num_stages=3,
        )  # fmt: skip
    merged = torch.empty_like(query)
    merge_kernel[(num * heads,)](out, total, merged, parts, power(parts), size, num_warps=1)
    return merged


# ---------------------------------------------------------------------------------------------------- sampling
@triton.jit
def block_sums_kernel(logits, highest, summed, num, blocks, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    value = tl.load(logits + row * num + place, mask=place < num, other=-float("inf"))
    top = tl.max(value, 0)
    tl.store(highest + row * blocks + part, top)
    tl.store(summed + row * blocks + part, tl.sum(tl.exp(value - top), 0))


@triton.jit
def choose_kernel(  # type: ignore[no-untyped-def]
    logits, highest, summed, uniform, token, logp, num, blocks, wide: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, wide)
    there = part < blocks
    tops = tl.load(highest + row * blocks + part, mask=there, other=-float("inf"))
    top = tl.max(tops, 0)
    weights = tl.where(there, tl.load(summed + row * blocks + part, mask=there, other=0.0) * tl.exp(tops - top), 0.0)
    running = tl.cumsum(weights, 0)
    whole = tl.sum(weights, 0)
    target = tl.load(uniform + row) * whole
    chosen = tl.minimum(tl.sum((running < target).to(tl.int32), 0), blocks - 1)
    before = tl.sum(tl.where(part < chosen, weights, 0.0), 0)
    place = chosen * block + tl.arange(0, block)
    value = tl.load(logits + row * num + place, mask=place < num, other=-float("inf"))
    inside = before + tl.cumsum(tl.exp(value - top), 0)
    last = tl.minimum(chosen * block + block, num) - 1
    found = tl.minimum(chosen * block + tl.sum((inside < target).to(tl.int32), 0), last)
    tl.store(token + row, found.to(tl.int64))
    tl.store(logp + row, tl.load(logits + row * num + found) - top - tl.log(whole))


def choose(logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse distribution function in two passes over the logits, the second over one block of them."""
    logits = logits.contiguous()
    rows, num = logits.shape
    blocks = triton.cdiv(num, BLOCK)
    highest = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    summed = torch.empty_like(highest)
    token = torch.empty(rows, dtype=torch.int64, device=logits.device)
    logp = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block_sums_kernel[(rows, blocks)](logits, highest, summed, num, blocks, BLOCK, num_warps=4)
    choose_kernel[(rows,)](
        logits, highest, summed, uniform, token, logp, num, blocks, power(blocks), BLOCK, num_warps=4
    )
    return token, logp
