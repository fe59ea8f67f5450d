"""Decoding in the trainer's own process, with the trainer's own weights: paged cache, shared prompts, CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from assay.sampling.sampler import Sampler
from assay.sampling.stacks import Stack, stack_of
from assay.types import Vocabulary

SHARE = 0.5
"""Of the memory that is free when a sampler is made: what its pages may take."""
MOST_ROWS = 1024

SAMPLERS: WeakKeyDictionary[nn.Module, Sampler] = WeakKeyDictionary()


def sampler_for(
    actor: nn.Module, prompts: Sequence[Sequence[int]], repeats: Sequence[int], longest: int
) -> Sampler | None:
    """The actor's sampler, made when it is first needed and again when it has become too small; None where its layers
    are of an unknown kind or size, or it is not on a GPU.
    """
    stack = stack_of(actor)
    if stack is None or not stack.weight.is_cuda or not fits_kernels(stack):
        return None
    rows = min(MOST_ROWS, max(8, sum(repeats)))
    reach = max(longest, max(map(len, prompts)) + longest)
    known = SAMPLERS.get(actor)
    fits = known is not None and known.num_rows >= rows and known.longest >= reach
    if known is not None and fits and known.stack.identity == stack.identity:
        return known
    SAMPLERS.pop(actor, None)
    page = 64
    weight = stack.weight
    size = 2 * stack.num_layers * page * stack.num_key_heads * stack.head_size * weight.element_size()
    needed = 1 + sum(-(-len(prompt) // page) for prompt in prompts) + sum(repeats) * (-(-longest // page) + 1)
    room = int(SHARE * torch.cuda.mem_get_info(weight.device)[0] / size)
    made = Sampler(stack, rows=rows, pages=max(8, min(needed, room)), longest=reach, page=page)
    SAMPLERS[actor] = made
    return made


def release(actor: nn.Module) -> None:
    """Frees what the actor's sampler holds of the cache, for whoever needs the memory next (an update); nothing to do
    where it has none. The next sampling allocates it again.
    """
    known = SAMPLERS.get(actor)
    if known is not None:
        known.release()


def fits_kernels(stack: Stack) -> bool:
    """Whether the kernels can multiply these heads: a power of two from 16 on, and no float64."""
    size = stack.head_size
    return size >= 16 and size & (size - 1) == 0 and stack.weight.dtype != torch.float64


def sampled(
    actor: Any,
    prompts: Sequence[Sequence[int]],
    repeats: Sequence[int],
    uniform_BN: Tensor | None,
    vocabulary: Vocabulary,
    longest: int,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """(tokens [B, N], logp [B, N], length [B]) on the CPU, rows in the order of prompts; None without a sampler."""
    sampler = sampler_for(actor, prompts, repeats, longest)
    if sampler is None:
        return None
    limit = torch.full((sum(repeats),), longest)
    tokens, logp, length = sampler.sample(prompts, repeats, uniform_BN, limit, vocabulary.eos)
    beyond = torch.arange(longest, device=tokens.device) >= length.unsqueeze(1)
    return tokens.masked_fill(beyond, vocabulary.pad).cpu(), logp.masked_fill(beyond, 0.0).float().cpu(), length.cpu()
