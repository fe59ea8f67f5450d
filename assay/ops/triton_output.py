"""The kernels of `output`; imported only on a machine with Triton. See there for the axes and the arithmetic.

A program has one tile of tokens and goes over tiles of words, a product of [tokens, W] and [W, words] for each; what it
keeps of them is one number a token, or the slopes in 16 bits.

Axes: N rows, W width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True)
class Tiling:
    """Sizes of a tile, warps and stages of a program, and whether the loops over words and width are one."""

    tokens: int
    words: int
    deep: int
    warps: int
    stages: int
    flat: bool


SUMS = Tiling(128, 256, 64, 8, 4, True)
SLOPES = Tiling(128, 256, 64, 8, 4, True)


@triton.jit
def sums_kernel(
    hidden: tl.tensor, weight: tl.tensor, highest: tl.tensor, summed: tl.tensor, moment: tl.tensor,
    num: int, words: int, per: int, width: tl.constexpr, tokens: tl.constexpr, block: tl.constexpr,
    deep: tl.constexpr, is_even: tl.constexpr, with_mean: tl.constexpr, flat: tl.constexpr,
) -> None:  # fmt: skip
    """Largest logit, sum of exponentials below it and their mean logit, of one tile over `per` tiles of words."""
    tile, part = tl.program_id(0), tl.program_id(1)
    row = tile * tokens + tl.arange(0, tokens)
    top = tl.full((tokens,), -1.0e30, tl.float32)
    total = tl.zeros((tokens,), tl.float32)
    mean = tl.zeros((tokens,), tl.float32)
    last = tl.minimum((part + 1) * per, tl.cdiv(words, block))
    for column in tl.range(part * per, last, flatten=flat):
        logit = tl.zeros((tokens, block), tl.float32)
        for k in range(0, width, deep):
            left = hidden.load([tile * tokens, k])
            right = weight.load([column * block, k])
            logit = tl.dot(left, right.T, logit)
        if not is_even:
            logit = tl.where((column * block + tl.arange(0, block) < words)[None, :], logit, -1.0e30)
        new = tl.maximum(top, tl.max(logit, 1))
        share = tl.exp2(logit * LOG2E - (new * LOG2E)[:, None])
        shrink = tl.exp2((top - new) * LOG2E)
        total = total * shrink + tl.sum(share, 1)
        if with_mean:
            mean = mean * shrink + tl.sum(share * logit, 1)
        top = new
    place = part * num + row
    there = row < num
    tl.store(highest + place, top, mask=there)
    tl.store(summed + place, total, mask=there)
    if with_mean:
        tl.store(moment + place, mean, mask=there)


@triton.jit
def slopes_kernel(
    hidden: tl.tensor, weight: tl.tensor, out: tl.tensor, token: tl.tensor, total: tl.tensor, slope: tl.tensor,
    entropy_slope: tl.tensor, entropy: tl.tensor,
    first: int, num: int, words: int, per: int, width: tl.constexpr, tokens: tl.constexpr, block: tl.constexpr,
    deep: tl.constexpr, with_entropy: tl.constexpr, flat: tl.constexpr,
) -> None:  # fmt: skip
    """dl of one tile of tokens over `per` tiles of words, in 16 bits; word 0 here is word `first` of the vocabulary."""
    tile, part = tl.program_id(0), tl.program_id(1)
    row = tile * tokens + tl.arange(0, tokens)
    there = row < num
    chosen = tl.load(token + row, mask=there, other=-1).to(tl.int32) - first
    under = tl.load(total + row, mask=there, other=0.0)
    g = tl.load(slope + row, mask=there, other=0.0)
    if with_entropy:
        e = tl.load(entropy_slope + row, mask=there, other=0.0)
        h = tl.load(entropy + row, mask=there, other=0.0)
    last = tl.minimum((part + 1) * per, tl.cdiv(words, block))
    for column in tl.range(part * per, last, flatten=flat):
        logit = tl.zeros((tokens, block), tl.float32)
        for k in range(0, width, deep):
            left = hidden.load([tile * tokens, k])
            right = weight.load([column * block, k])
            logit = tl.dot(left, right.T, logit)
        # In halves, so that what waits to be written takes less shared memory.
        halves = tl.permute(tl.reshape(logit, (tokens, 2, block // 2)), (0, 2, 1))
        left_half, right_half = tl.split(halves)
        for half in tl.static_range(2):
            some = left_half if half == 0 else right_half
            share = tl.exp2(some * LOG2E - (under * LOG2E)[:, None])
            if with_entropy:
                value = -share * (g[:, None] + e[:, None] * (some - under[:, None] + h[:, None]))
            else:
                value = -share * g[:, None]
            start = column * block + half * (block // 2)
            word = start + tl.arange(0, block // 2)
            value = tl.where(word[None, :] == chosen[:, None], value + g[:, None], value)
            out.store([tile * tokens, start], value.to(out.dtype))


@triton.jit
def chosen_kernel(
    hidden: tl.tensor, weight: tl.tensor, token: tl.tensor, out: tl.tensor, width: tl.constexpr, wide: tl.constexpr
) -> None:
    """The chosen token's logit, a program a token."""
    row = tl.program_id(0).to(tl.int64)
    word = tl.load(token + row).to(tl.int64)
    column = tl.arange(0, wide)
    inside = column < width
    left = tl.load(hidden + row * width + column, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(weight + word * width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row, tl.sum(left * right, 0))


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of the GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def parts(tiles: int, columns: int, programs: int) -> tuple[int, int]:
    """(programs that share a tile's columns, columns of each), for about so many programs in all, and not more."""
    many = max(1, min(columns, programs // tiles))
    per = -(-columns // many)
    return -(-columns // per), per


def measured(hidden: Tensor, weight: Tensor, token: Tensor, with_mean: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(chosen logit, log-sum-exp, mean logit where asked for), each [N] in float32."""
    (num, width), words, by = hidden.shape, len(weight), SUMS
    tiles = triton.cdiv(num, by.tokens)
    many, per = parts(tiles, triton.cdiv(words, by.words), 8 * processors(hidden.device))
    highest = torch.empty(many, num, dtype=torch.float32, device=hidden.device)
    summed = torch.empty_like(highest)
    moment = torch.empty_like(highest) if with_mean else highest
    left = TensorDescriptor.from_tensor(hidden, [by.tokens, by.deep])
    right = TensorDescriptor.from_tensor(weight, [by.words, by.deep])
    sums_kernel[(tiles, many)](
        left, right, highest, summed, moment, num, words, per, width, by.tokens, by.words, by.deep,
        words % by.words == 0, with_mean, by.flat, num_warps=by.warps, num_stages=by.stages,
    )  # fmt: skip
    top = highest.amax(0)
    weighed = torch.exp(highest - top)
    whole = (summed * weighed).sum(0)
    chosen = torch.empty(num, dtype=torch.float32, device=hidden.device)
    chosen_kernel[(num,)](hidden, weight, token, chosen, width, int(triton.next_power_of_2(width)), num_warps=2)
    mean = (moment * weighed).sum(0) / whole if with_mean else top
    return chosen, top + whole.log(), mean


def slopes(
    hidden: Tensor, weight: Tensor, token: Tensor, total: Tensor, slope: Tensor, entropy_slope: Tensor | None,
    entropy: Tensor, first: int, out: Tensor,
) -> None:  # fmt: skip
    """Writes dl [n, words] into `out`."""
    (num, width), words, by = hidden.shape, len(weight), SLOPES
    tiles = triton.cdiv(num, by.tokens)
    many, per = parts(tiles, triton.cdiv(words, by.words), processors(hidden.device))
    left = TensorDescriptor.from_tensor(hidden, [by.tokens, by.deep])
    right = TensorDescriptor.from_tensor(weight, [by.words, by.deep])
    result = TensorDescriptor.from_tensor(out, [by.tokens, by.words // 2])
    slopes_kernel[(tiles, many)](
        left, right, result, token, total, slope.contiguous(),
        slope if entropy_slope is None else entropy_slope.contiguous(), entropy, first, num, words, per, width,
        by.tokens, by.words, by.deep, entropy_slope is not None, by.flat, num_warps=by.warps, num_stages=by.stages,
    )  # fmt: skip
