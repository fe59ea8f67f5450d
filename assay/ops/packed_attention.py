"""Attention over packed rows with shared prompts. Axes: N packed tokens, M keys, H heads, K heads of keys, E head
size.

A piece that follows a shared prompt has more keys than queries: the prompt, then itself. The causal mask of the
varlen kernel is aligned at the ends of both, so each query sees the whole prompt and its own piece up to itself. Keys
and values of prompts are copied for that, layer by layer and only while the kernel runs; the large tensors, the
states between layers and the products that compute them, exist once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.ops import attention
from assay.ops.attention import Attention
from assay.ops.packing import Pack, sees

FAST = (torch.bfloat16, torch.float16)
LARGEST_HEAD = 256
"""The largest head size of the kernel."""


def plan(pack: Pack, is_fast: bool, device: torch.device) -> dict[str, Tensor]:
    """Returns the arguments of `attend` besides queries, keys and values, for all layers."""
    if not is_fast:
        return {"allowed": sent(sees(pack.piece_N, pack.follows_N), device), "position": sent(pack.position_N, device)}
    longest = torch.tensor([int(some.diff().max()) for some in (pack.begin, pack.begin_key)])
    numbers = {name: getattr(pack, name) for name in ("begin", "begin_key", "key_M", "own_N", "copies_PC")}
    return {"longest": longest, **{name: sent(some, device) for name, some in numbers.items()}}


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Copies to the device without waiting for its earlier work."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def attend(query_NHE: Tensor, key_NKE: Tensor, value_NKE: Tensor, how: Attention, plan: dict[str, Tensor]) -> Tensor:
    """Returns the attention output, [N, H, E]. AssayError where the kernel of the plan does not compute it."""
    if "allowed" in plan:
        query, key, value = (some.transpose(0, 1).unsqueeze(0) for some in (query_NHE, key_NKE, value_NKE))
        allowed, position = plan["allowed"], plan["position"]
        if how.window:
            allowed = allowed & how.within(position.unsqueeze(1) - position)
        return attention.attend(query, key, value, allowed, how).squeeze(0).transpose(0, 1)
    if not how.is_plain:
        raise AssayError("windows, soft caps and sinks have no kernel for packed rows. Set packed=False")
    numbers = (plan[name] for name in ("begin", "begin_key", "key_M", "own_N", "copies_PC", "longest"))
    attended, _ = attend_packed(query_NHE, key_NKE, value_NKE, *numbers, how.scale)
    return attended


def is_fast(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Returns whether the kernel supports this device, dtype and head size."""
    return device.type == "cuda" and dtype in FAST and head_size <= LARGEST_HEAD and head_size % 8 == 0


def lse_like(query_NHE: Tensor) -> Tensor:
    """Allocates a log-sum-exp of each token and head."""
    return query_NHE.new_empty(query_NHE.shape[1], query_NHE.shape[0], dtype=torch.float32)


def kernel(
    query: Tensor, key: Tensor, value: Tensor, begin: Tensor, begin_key: Tensor, longest: int, longest_key: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Calls PyTorch's varlen attention: (output, log-sum-exp)."""
    output, lse, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, begin, begin_key, longest, longest_key, 0.0, True, False, scale=scale
    )
    return output, lse


def kernel_slopes(
    slope: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, begin: Tensor,
    begin_key: Tensor, longest: int, longest_key: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Computes its backward pass."""
    seed = torch.zeros(2, dtype=torch.uint64, device=query.device)  # the seed of a dropout of 0
    slopes: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
        slope, query, key, value, output, lse, begin, begin_key, longest, longest_key, 0.0, True, seed,
        query.new_empty(0), scale=scale,
    )  # fmt: skip
    return slopes


def forward(
    query: Tensor, key: Tensor, value: Tensor, begin: Tensor, begin_key: Tensor, key_M: Tensor, own_N: Tensor,
    copies_PC: Tensor, longest: Tensor, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns (output [N, H, E], log-sum-exp [H, N])."""
    num, num_key = longest.tolist()
    return kernel(
        query, key.index_select(0, key_M), value.index_select(0, key_M), begin, begin_key, num, num_key, scale
    )


def backward(
    slope: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, begin: Tensor,
    begin_key: Tensor, key_M: Tensor, own_N: Tensor, copies_PC: Tensor, longest: Tensor, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the gradients of (query, key, value)."""
    num, num_key = longest.tolist()
    slopes = kernel_slopes(
        slope.contiguous(), query, key.index_select(0, key_M), value.index_select(0, key_M), output, lse, begin,
        begin_key, num, num_key, scale,
    )  # fmt: skip
    return slopes[0], summed(slopes[1], own_N, copies_PC), summed(slopes[2], own_N, copies_PC)


def summed(slope_MKE: Tensor, own_N: Tensor, copies_PC: Tensor) -> Tensor:
    """Returns [N, K, E]: for a token of a prompt the sum over its copies, in a fixed order on every device."""
    found = slope_MKE.index_select(0, own_N)
    if copies_PC.numel():
        is_none = (copies_PC == len(slope_MKE)).view(*copies_PC.shape, 1, 1)
        copies = slope_MKE.index_select(0, copies_PC.clamp(max=len(slope_MKE) - 1).view(-1))
        found[: len(copies_PC)] = copies.unflatten(0, copies_PC.shape).masked_fill(is_none, 0.0).sum(1)
    return found


def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Saves tensors for the backward pass."""
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])


def slopes_of_kept(ctx: Any, slope: Tensor, _: Any) -> tuple[Any, ...]:
    """Returns the gradients of queries, keys and values, and None for other inputs."""
    *tensors, output, lse = ctx.saved_tensors
    return (*attend_packed_backward(slope, *tensors[:3], output, lse, *tensors[3:], ctx.scale), *[None] * 7)


# Operators that are opaque to the compiler, which must not specialise on the sizes they read on the host.
attend_packed = torch.library.custom_op("assay::attend_packed", forward, mutates_args=())
attend_packed_backward = torch.library.custom_op("assay::attend_packed_backward", backward, mutates_args=())
attend_packed.register_fake(lambda query, *rest: (query.new_empty(query.shape), lse_like(query)))
attend_packed_backward.register_fake(lambda slope, *given: tuple(some.new_empty(some.shape) for some in given[:3]))
attend_packed.register_autograd(slopes_of_kept, setup_context=keep)
