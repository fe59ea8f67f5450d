"""Log-probabilities of given tokens together with the output layer, forward and backward, in several ways."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.ops.bfloat16 import prepare_bfloat16
from benchmarks.gpu_work import Size, peak, reset_peak, seconds


def naive(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """All logits at once, in float32."""
    return -nn.functional.cross_entropy((hidden @ weight.t()).float(), token, reduction="none")


def chunked(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """4,096 tokens at a time, made again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    chunks = zip(hidden.split(4096), token.split(4096), strict=True)
    return torch.cat([checkpoint(naive, some, weight, own, use_reentrant=False) for some, own in chunks])


def compiled(function: Any, hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """8,192 tokens at a time, by torch.compile."""
    chunks = zip(hidden.split(8192), token.split(8192), strict=True)
    return torch.cat([function(some, weight, own) for some, own in chunks])


def chunks_at_once(function: Any, hidden: Tensor, weight: Tensor, token: Tensor, slope: Tensor) -> None:
    """torch.compile with a slope that is known beforehand: each chunk's gradient before the next chunk's logits."""
    for some, own, part in zip(hidden.split(8192), token.split(8192), slope.split(8192), strict=True):
        (function(some, weight, own) * part).sum().backward()


def together(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """Ours."""
    from assay.ops.output import given_logp

    return given_logp(hidden, weight, token)[0]


def liger(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """Liger's fused linear cross entropy, the gradient of a known (equal) slope made in the forward pass."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    loss = LigerFusedLinearCrossEntropyFunction.apply(hidden, weight, token)
    return -(loss[0] if isinstance(loss, tuple) else loss) * len(token)


def logp_table(size: Size, repetitions: int = 5) -> list[dict[str, Any]]:
    """Milliseconds (median, range) and memory beside inputs of forward and backward, at 16k and 64k tokens."""
    device, words, width = size.device, size.words, int(size.shape["hidden_size"])
    weight = (0.02 * torch.randn(words, width, device=device)).bfloat16().requires_grad_()
    prepare_bfloat16()  # a toy runs on the CPU
    repetitions = 1 if size.toy else repetitions
    fast = torch.compile(naive) if not size.toy else naive
    rows = []
    for num in (16_384, 65_536) if not size.toy else (16, 32):
        hidden = torch.randn(num, width, device=device).bfloat16().requires_grad_()
        token, slope = torch.randint(words, (num,), device=device), torch.randn(num, device=device) / num
        known: Callable[..., None] = partial(chunks_at_once, fast, hidden, weight, token, slope)
        ways: dict[str, Callable[[], Any]] = {
            "naive": partial(naive, hidden, weight, token),
            "chunked": partial(chunked, hidden, weight, token),
            "torch.compile": partial(compiled, fast, hidden, weight, token),
            "torch.compile, known slope": known,
            "Liger, known slope": partial(liger, hidden, weight, token),
            "ours": partial(together, hidden, weight, token),
        }
        for name, way in ways.items():
            if num * words > 3e9 and name in ("naive", "torch.compile"):
                continue  # tens of GiB of logits
            rows.append({"tokens": num, "way": name} | timed(way, slope, (hidden, weight), repetitions))
            print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return rows


def timed(way: Callable[[], Any], slope: Tensor, leaves: Sequence[Tensor], repetitions: int) -> dict[str, Any]:
    """Forward and backward."""
    times: list[float] = []
    most = 0.0
    try:
        for number in range(repetitions + 2):
            for leaf in leaves:
                leaf.grad = None
            reset_peak()
            held = torch.cuda.memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
            before = seconds()
            result = way()
            if result is not None:
                (result * slope[: result.numel()] if result.dim() else result).sum().backward()
            if number > 1:
                times.append(1000.0 * (seconds() - before))
            most = max(most, peak() - held)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    finally:
        for leaf in leaves:
            leaf.grad = None
    return {"milliseconds": times, "gib": most}
