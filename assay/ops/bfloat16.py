"""bfloat16 on a CPU without instructions for it: torch then computes without oneDNN, and here from the start.

At the first large product torch finds that oneDNN cannot do it, warns, and turns oneDNN off for the rest of the
process. The numbers of a run would depend on when that happens, so oneDNN is turned off before anything is computed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import nn


@cache
def lacks_bfloat16() -> bool:
    """Returns whether torch turns oneDNN off at a large product of bfloat16 matrices on this CPU."""
    before, square = torch.backends.mkldnn.enabled, torch.ones(256, 256, dtype=torch.bfloat16)
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nn.functional.linear(square, square)
        still_on: Any = torch.backends.mkldnn.enabled
        return not still_on
    finally:
        torch.backends.mkldnn.enabled = before


def uses_bfloat16(models: Iterable[nn.Module], precision: torch.dtype | None, device: str | torch.device) -> bool:
    """Returns whether the models compute in bfloat16 on the CPU: by their weights, or by autocast."""
    if torch.device(device).type != "cpu":
        return False
    weights = (weight.dtype for model in models for weight in model.parameters())
    return precision == torch.bfloat16 or torch.bfloat16 in weights


def prepare_bfloat16() -> None:
    """Turns oneDNN off if this CPU has no bfloat16 instructions; call it before computing in bfloat16."""
    if lacks_bfloat16():
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
