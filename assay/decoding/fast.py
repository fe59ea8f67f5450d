"""Decoding in the trainer's own process, with the trainer's own weights: paged cache, shared prompts, CUDA graphs.

Axes: B results, N tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Sampled
from assay.core.spaces import Vocabulary
from assay.decoding.kernels import Changed
from assay.decoding.layers import Stack, stack_of, trouble
from assay.decoding.pages import Way
from assay.decoding.scheduler import Sampler
from assay.decoding.sessions import Session
from assay.ops.decoded import Stop, Written

SHARE = 0.5
"""Share of the memory free when a sampler is made that its pages may take."""
MOST_ROWS = 1024


def sampler_for(actor: Any, prompts: Sequence[Sequence[int]], repeats: Sequence[int], longest: int) -> Sampler | None:
    """Returns the actor's sampler, created on first use and again when it has become too small; None if its layers
    are of an unknown kind or size, or it is not on a GPU.
    """
    stack = stack_of(actor) if isinstance(actor, Sampled) else None
    if stack is None or not stack.weight.is_cuda or not fits_kernels(stack):
        say_why(actor, stack)
        return None
    rows = min(MOST_ROWS, max(8, sum(repeats)))  # more rows than that decode no faster, only with more memory
    reach = max(longest, max(map(len, prompts)) + longest)
    known: Sampler | None = actor.sampler.held
    # A larger sampler than needed is kept, with its recorded graphs.
    fits = known is not None and known.num_rows >= rows and known.longest >= reach
    if known is not None and fits and known.stack.identity == stack.identity:
        return known
    actor.sampler.held = None  # before the free memory is read, so that its own memory counts as free
    known, page = None, 64
    weight = stack.weight
    size = 2 * stack.num_layers * page * stack.num_key_heads * stack.head_size * weight.element_size()
    needed = 1 + sum(-(-len(prompt) // page) for prompt in prompts) + sum(repeats) * (-(-longest // page) + 1)
    room = int(SHARE * torch.cuda.mem_get_info(weight.device)[0] / size)
    made = Sampler(stack, rows=rows, pages=pages_of(needed, room), longest=reach, page=page)
    actor.sampler.held = made
    return made


def say_why(actor: Any, stack: Stack | None) -> None:
    """Warns of a pretrained network that the sampler does not decode, and says why."""
    network = getattr(actor, "network", None)
    reason = trouble(network) if stack is None else f"no kernel has heads of {stack.head_size} in {stack.weight.dtype}"
    if network is not None and (stack is None or stack.weight.is_cuda):
        warnings.warn(f"{type(network).__name__} is decoded by its own cache, more slowly: {reason}", stacklevel=2)


def pages_of(needed: int, room: int) -> int:
    """Returns the pages of a sampler: not more than are needed, because the update shares the memory; not more than
    there is room for, because rows can wait. Warns of the second, since rows in other company have other last bits;
    AssayError where only deterministic kernels are allowed.
    """
    if room < needed and torch.are_deterministic_algorithms_enabled():
        raise AssayError(
            f"--deterministic: GPU memory is short, the sampler has room for {room:,} of {needed:,} pages, and what it "
            "samples would depend on what else uses the GPU. Free memory, or use fewer --prompts or a smaller "
            "--max-tokens"
        )
    if room < needed:
        warnings.warn(
            f"GPU memory is short: the sampler has {max(8, room):,} of {needed:,} pages, so rows wait for one another. "
            "With more free memory this run would be faster, and its samples could differ",
            stacklevel=3,
        )
    return max(8, min(needed, room))


def fits_kernels(stack: Stack) -> bool:
    """Returns whether the kernels support these heads: a size that is a power of two from 16 on, and not float64."""
    size = stack.head_size
    return size >= 16 and size & (size - 1) == 0 and stack.weight.dtype != torch.float64


def sampled(
    actor: Any,
    prompts: Sequence[Sequence[int]],
    repeats: Sequence[int],
    uniform_BN: Tensor | None,
    vocabulary: Vocabulary,
    longest: int,
    *,
    narrowing: Changed | None = None,
    stop: Stop | None = None,
    said: Sequence[Sequence[int]] = (),
    newest: Callable[[], int] | None = None,
) -> Written | None:
    """Returns padded results on the CPU, in the order of prompts; None without a sampler. See `Sampler.sample`."""
    sampler = sampler_for(actor, prompts, repeats, longest)
    if sampler is None:
        return None
    limit, way = torch.full((sum(repeats),), longest), Way(vocabulary.eos, uniform_BN is None, narrowing)
    shared, many, forced = in_common(prompts, repeats, sampler.page)
    found = sampler.sample(shared, many, uniform_BN, limit, way, forced=forced, stop=stop, said=said, newest=newest)
    return on_the_host(found, vocabulary.pad)


def in_common(
    prompts: Sequence[Sequence[int]], repeats: Sequence[int], least: int
) -> tuple[list[list[int]], list[int], list[list[int]]]:
    """Returns (prompts, repeats, forced beginning of each row): neighbours that share at least `least` tokens, and at
    least as much as they do not share, become one prompt if fewer tokens are to be read then (branches of a tree; not
    groups, whose members share all of theirs already).
    """

    def cost(same: int, members: Sequence[int]) -> int:
        return same + sum(repeats[member] * (len(prompts[member]) - same) for member in members)

    groups: list[tuple[list[int], list[int]]] = []
    for place, prompt in enumerate(prompts):
        before, members = groups[-1] if groups else ([], [])
        pairs = enumerate(zip(before, prompt, strict=False))
        same = next((time for time, (one, other) in pairs if one != other), min(len(before), len(prompt)))
        both = [*members, place]
        rest = max(len(prompts[member]) for member in both) - same
        if same >= max(1, least, rest) and cost(same, both) < cost(len(before), members) + len(prompt):
            groups[-1] = before[:same], both
        else:
            groups.append((list(prompt), [place]))
    own = [(len(shared), member) for shared, members in groups for member in members]
    forced = [list(prompts[member][begin:]) for begin, member in own for _ in range(repeats[member])]
    return [shared for shared, _ in groups], [sum(repeats[m] for m in members) for _, members in groups], forced


def session_for(
    actor: Any,
    prompts: Sequence[Sequence[int]],
    repeats: Sequence[int],
    longest: int,
    newest: Callable[[], int] | None = None,
) -> Session | None:
    """Returns a session of the actor's sampler with room for `longest` tokens after each prompt, if it has one."""
    sampler = sampler_for(actor, prompts, repeats, longest)
    return None if sampler is None else Session(sampler, newest)


def on_the_host(found: Written, pad: int) -> Written:
    """Returns the results on the CPU, padded after their ends, log-probabilities in float32."""
    beyond = torch.arange(found.tokens.shape[1], device=found.tokens.device) >= found.length.unsqueeze(1)
    logp, model = (
        None if some is None else some.masked_fill(beyond, 0.0).float().cpu() for some in (found.logp, found.logp_model)
    )
    assert logp is not None
    tokens, ends = found.tokens.masked_fill(beyond, pad).cpu(), (found.length.cpu(), found.has_ended.cpu())
    experts = None if found.experts is None else found.experts.cpu()
    return Written(tokens, logp, *ends, model, found.version, experts)
