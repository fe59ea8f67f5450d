"""Kernels that draw tokens and write them down; see `triton_kernels` for the others, `kernels` for the arithmetic.

Tensors have one entry a row, or are buffers [B results, N tokens].
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
TINY = tl.constexpr(1e-37)
LOWEST = tl.constexpr(-(2**31))


def power(number: int) -> int:
    """The next power of two."""
    return int(triton.next_power_of_2(number))


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
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """What a step needs of the rows at `place`: the numbers of `pages.Look`, [5, N], and the uniform ones."""
    num, block = len(place), 128
    found = torch.empty(5, num, dtype=torch.int64, device=place.device)
    number = torch.empty(num, dtype=torch.float32, device=place.device)
    draws = uniform is not None
    look_kernel[(triton.cdiv(num, block),)](
        place, table, length, prompt_of, prompt_length, last, done.view(torch.int8), result, time,
        uniform if uniform is not None else number, found, number, num, table.shape[1],
        uniform.shape[1] if uniform is not None else 1, page, draws, block, num_warps=4,
    )  # fmt: skip
    return found, number if draws else None


@triton.jit
def note_kernel(
    place: tl.tensor, token: tl.tensor, logp: tl.tensor, model: tl.tensor, tokens: tl.tensor, logps: tl.tensor,
    models: tl.tensor, result: tl.tensor, time: tl.tensor, done: tl.tensor, last: tl.tensor, limit: tl.tensor,
    eos: tl.tensor, num: tl.tensor, padding: tl.tensor, width: tl.tensor, both: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Some rows; finished ones write to the padding row."""
    line = tl.program_id(0) * block + tl.arange(0, block)
    inside = line < num
    who = tl.load(place + line, mask=inside, other=0)
    chosen = tl.load(token + line, mask=inside, other=0)
    when = tl.load(time + who, mask=inside, other=0)
    which = tl.load(result + who, mask=inside, other=0)
    over = tl.load(done + who, mask=inside, other=1) != 0
    spot = tl.where(over, padding * width + width - 1, which * width + when)
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
    """See `kernels.note`."""
    (tokens, token), (logps, logp), (models, model) = (*records, records[1])[:3]
    num, block = len(place), 128
    note_kernel[(triton.cdiv(num, block),)](
        place, token, logp, model, tokens, logps, models, result, time, done.view(torch.int8), last, limit, eos, num,
        len(tokens) - 1, tokens.shape[1], len(records) > 2, block, num_warps=4,
    )  # fmt: skip


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
    shift = tl.where(top > -float("inf"), top, 0.0)  # a block without anything that can be chosen has weight 0
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
