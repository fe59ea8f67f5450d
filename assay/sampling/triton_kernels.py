"""The kernels themselves; imported only on a machine with Triton. See `kernels` for the axes and the arithmetic."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.sampling.pages import Look

BLOCK = 4096
TINY = tl.constexpr(1e-37)
LOWEST = tl.constexpr(-(2**31))
WARPS, STAGES = 4, 2


def power(number: int) -> int:
    """The next power of two."""
    return int(triton.next_power_of_2(number))


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


# ---------------------------------------------------------------------------------------------------- rows
@triton.jit
def look_kernel(
    place: tl.tensor, table: tl.tensor, length: tl.tensor, prompt_of: tl.tensor, prompt_length: tl.tensor,
    last: tl.tensor, done: tl.tensor, result: tl.tensor, time: tl.tensor, uniform: tl.tensor, found: tl.tensor,
    number: tl.tensor, num: tl.tensor, pages: tl.tensor, width: tl.tensor, page: tl.constexpr, draws: tl.constexpr,
    block: tl.constexpr,
) -> None:  # fmt: skip
    """Some rows: five numbers of each go to `found`, and its length grows unless it is done."""
    line = tl.program_id(0) * block + tl.arange(0, block)
    inside = line < num
    who = tl.load(place + line, mask=inside, other=0)
    own = tl.load(length + who, mask=inside, other=0)
    where = tl.load(table + who * pages + own // page, mask=inside, other=0)
    before = tl.load(prompt_length + tl.load(prompt_of + who, mask=inside, other=0), mask=inside, other=0)
    tl.store(found + line, tl.load(last + who, mask=inside, other=0), mask=inside)
    tl.store(found + num + line, where, mask=inside)
    tl.store(found + 2 * num + line, own % page, mask=inside)
    tl.store(found + 3 * num + line, own + 1, mask=inside)
    tl.store(found + 4 * num + line, before + own, mask=inside)
    if draws:
        when = tl.minimum(tl.load(time + who, mask=inside, other=0), width - 1)
        which = tl.load(result + who, mask=inside, other=0)
        tl.store(number + line, tl.load(uniform + which * width + when, mask=inside, other=0.5), mask=inside)
    tl.store(length + who, own + 1, mask=inside & (tl.load(done + who, mask=inside, other=1) == 0))


def look(
    place: Tensor, table: Tensor, page: int, length: Tensor, prompt_of: Tensor, prompt_length: Tensor, last: Tensor,
    done: Tensor, result: Tensor, time: Tensor, uniform: Tensor | None,
) -> Look:  # fmt: skip
    """What a step needs of the rows at `place`; see `Sampler.look`."""
    num, block = len(place), 128
    found = torch.empty(5, num, dtype=torch.int64, device=place.device)
    number = torch.empty(num, dtype=torch.float32, device=place.device)
    draws = uniform is not None
    look_kernel[(triton.cdiv(num, block),)](
        place, table, length, prompt_of, prompt_length, last, done.view(torch.int8), result, time,
        uniform if uniform is not None else number, found, number, num, table.shape[1],
        uniform.shape[1] if uniform is not None else 1, page, draws, block, num_warps=4,
    )  # fmt: skip
    token, which, offset, seen, position = found.unbind()
    return Look(token, which, offset, seen, position, number if draws else None)


@triton.jit
def note_kernel(
    place: tl.tensor, token: tl.tensor, logp: tl.tensor, model: tl.tensor, tokens: tl.tensor, logps: tl.tensor,
    models: tl.tensor, result: tl.tensor, time: tl.tensor, done: tl.tensor, last: tl.tensor, limit: tl.tensor,
    eos: tl.tensor, num: tl.tensor, nobody: tl.tensor, width: tl.tensor, both: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Some rows; those that are done write to nobody's result."""
    line = tl.program_id(0) * block + tl.arange(0, block)
    inside = line < num
    who = tl.load(place + line, mask=inside, other=0)
    chosen = tl.load(token + line, mask=inside, other=0)
    when = tl.load(time + who, mask=inside, other=0)
    which = tl.load(result + who, mask=inside, other=0)
    over = tl.load(done + who, mask=inside, other=1) != 0
    spot = tl.where(over, nobody * width + width - 1, which * width + when)
    tl.store(tokens + spot, chosen, mask=inside)
    tl.store(logps + spot, tl.load(logp + line, mask=inside, other=0.0), mask=inside)
    if both:
        tl.store(models + spot, tl.load(model + line, mask=inside, other=0.0), mask=inside)
    ends = over | (chosen == eos) | (when + 1 >= tl.load(limit + which, mask=inside, other=0))
    tl.store(last + who, chosen, mask=inside)
    tl.store(time + who, tl.where(over, when, when + 1), mask=inside)
    tl.store(done + who, ends.to(tl.int8), mask=inside)


def note(
    place: Tensor, records: list[tuple[Tensor, Tensor]], result: Tensor, time: Tensor, done: Tensor, last: Tensor,
    limit: Tensor, eos: int,
) -> None:  # fmt: skip
    """Writes down what the rows at `place` chose; `records` are (table, values): tokens, log-probabilities, and those
    of the model itself where they are others.
    """
    (tokens, token), (logps, logp), (models, model) = (*records, records[1])[:3]
    num, block = len(place), 128
    note_kernel[(triton.cdiv(num, block),)](
        place, token, logp, model, tokens, logps, models, result, time, done.view(torch.int8), last, limit, eos, num,
        len(tokens) - 1, tokens.shape[1], len(records) > 2, block, num_warps=4,
    )  # fmt: skip


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

    `shared` and `own` are (rows [C, M], tables, table_of, lengths, length_of). Own keys that are not split go on from
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


# ---------------------------------------------------------------------------------------------------- sampling
@triton.jit
def block_sums_kernel(
    logits: tl.tensor, highest: tl.tensor, summed: tl.tensor, num: tl.tensor, blocks: tl.tensor,
    block: tl.constexpr,
) -> None:  # fmt: skip
    """The largest logit of one block of one row, and its sum of exponentials."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    value = tl.load(logits + row * num + place, mask=place < num, other=-float("inf"))
    top = tl.max(value, 0)
    tl.store(highest + row * blocks + part, top)
    shift = tl.where(top > -float("inf"), top, 0.0)  # a block without anything that can be chosen weighs 0
    tl.store(summed + row * blocks + part, tl.sum(tl.exp(value - shift), 0))


@triton.jit
def choose_kernel(
    logits: tl.tensor, highest: tl.tensor, summed: tl.tensor, uniform: tl.tensor, token: tl.tensor, logp: tl.tensor,
    num: tl.tensor, blocks: tl.tensor, wide: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """The block in which the target lies, then the token inside it."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, wide)
    there = part < blocks
    tops = tl.load(highest + row * blocks + part, mask=there, other=-float("inf"))
    top = tl.max(tops, 0)
    weights = tl.where(there, tl.load(summed + row * blocks + part, mask=there, other=0.0) * tl.exp(tops - top), 0.0)
    running = tl.cumsum(weights, 0)
    whole = tl.sum(weights, 0)
    target = tl.maximum(tl.load(uniform + row) * whole, TINY)
    # Rounding may put the target behind the last token that can be chosen: nothing of probability 0 is taken.
    furthest = tl.max(tl.where(weights > 0, part, 0), 0)
    chosen = tl.minimum(tl.sum((running < target).to(tl.int32), 0), furthest)
    before = tl.sum(tl.where(part < chosen, weights, 0.0), 0)
    place = chosen * block + tl.arange(0, block)
    value = tl.load(logits + row * num + place, mask=place < num, other=-float("inf"))
    weight = tl.exp(value - top)
    inside = before + tl.cumsum(weight, 0)
    last = tl.minimum(chosen * block + block, num) - 1
    found = tl.minimum(chosen * block + tl.sum((inside < target).to(tl.int32), 0), last)
    reached = tl.min(tl.where((inside >= target) & (weight > 0), place, num), 0)
    reached = tl.minimum(reached, tl.max(tl.where(weight > 0, place, chosen * block), 0))
    found = tl.where(tl.sum(tl.where(place == found, weight, 0.0), 0) > 0, found, reached)
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


def total_of(logits: Tensor) -> Tensor:
    """log sum exp of each row, in one pass."""
    logits = logits.contiguous()
    rows, num = logits.shape
    blocks = triton.cdiv(num, BLOCK)
    highest = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    summed = torch.empty_like(highest)
    block_sums_kernel[(rows, blocks)](logits, highest, summed, num, blocks, BLOCK, num_warps=4)
    return (highest + summed.log()).logsumexp(1)


# ---------------------------------------------------------------------------------------------------- narrowing
@triton.jit
def ordered(value: tl.tensor) -> tl.tensor:
    """Integers in the order of float32 numbers."""
    bits = value.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def found_digit(
    logits: tl.tensor, num: tl.tensor, top: tl.tensor, inverse: tl.tensor, least: tl.tensor, begin: tl.tensor,
    width: tl.tensor, target: tl.tensor, by_mass: tl.constexpr, ways: tl.constexpr, block: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The last of begin, begin + width, ... at or above which tokens (not below `least`) have at least the target."""
    candidate = begin + tl.arange(0, ways) * width
    summed = tl.zeros((ways, block), tl.float32)
    for first in range(0, num, block):
        place = first + tl.arange(0, block)
        scaled = (tl.load(logits + place, mask=place < num, other=-float("inf")) - top) * inverse
        key = ordered(scaled)
        weight = tl.exp(scaled) if by_mass else tl.where(place < num, 1.0, 0.0)
        weight = tl.where(key >= least, weight, 0.0)
        summed += tl.where(key[None, :] >= candidate[:, None], weight[None, :], 0.0)
    enough = tl.sum(summed, 1) >= target
    return begin + tl.max(tl.where(enough, tl.arange(0, ways), 0), 0) * width


@triton.jit
def narrow_kernel(
    logits: tl.tensor, kept: tl.tensor, num: tl.tensor, inverse: tl.tensor, top_k: tl.tensor, top_p: tl.tensor,
    log_min_p: tl.tensor, has_k: tl.constexpr, has_p: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """One row. A threshold is found in eight digits of four bits: the largest number such that what is not below it
    is at least k tokens, or has at least the share p.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * num
    highest = tl.full((block,), -float("inf"), tl.float32)
    for first in range(0, num, block):
        place = first + tl.arange(0, block)
        highest = tl.maximum(highest, tl.load(logits + place, mask=place < num, other=-float("inf")))
    top = tl.max(highest, 0)
    least = tl.full((), LOWEST, tl.int32)
    if has_k:
        begin = least
        for digit in range(8):
            width = 1 << (28 - 4 * digit)
            begin = found_digit(logits, num, top, inverse, least, begin, width, top_k, False, 16, block)
        least = begin
    if has_p:
        mass = tl.zeros((block,), tl.float32)
        for first in range(0, num, block):
            place = first + tl.arange(0, block)
            scaled = (tl.load(logits + place, mask=place < num, other=-float("inf")) - top) * inverse
            mass += tl.where(ordered(scaled) >= least, tl.exp(scaled), 0.0)
        target = tl.sum(mass, 0) * top_p
        begin = tl.full((), LOWEST, tl.int32)
        for digit in range(8):
            width = 1 << (28 - 4 * digit)
            begin = found_digit(logits, num, top, inverse, least, begin, width, target, True, 16, block)
        least = tl.maximum(least, begin)
    least = tl.minimum(least, 0)  # the likeliest is 0, and stays
    for first in range(0, num, block):
        place = first + tl.arange(0, block)
        scaled = (tl.load(logits + place, mask=place < num, other=-float("inf")) - top) * inverse
        result = tl.where((ordered(scaled) >= least) & (scaled >= log_min_p), scaled, -float("inf"))
        tl.store(kept + row * num + place, result, mask=place < num)


def narrowed(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Scaled logits of one row a program, minus infinity for removed tokens; see `kernels.narrowed`."""
    logits = logits.contiguous()
    rows, num = logits.shape
    kept = torch.empty_like(logits)
    least = math.log(min_p) if min_p > 0 else -math.inf
    narrow_kernel[(rows,)](
        logits, kept, num, 1.0 / temperature, float(min(top_k, num)), top_p, least, 0 < top_k < num, top_p < 1.0,
        1024, num_warps=8,
    )  # fmt: skip
    return kept
