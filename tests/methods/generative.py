"""Policies that generate actions, built and asked in tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.core.spaces import Box, Spec

TWO = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0, 0.0), (2.0, 1.0)), horizon=5)


def built(spec: Any, task: Spec = TWO) -> Any:
    torch.manual_seed(3)
    return spec.build(task).double()


def seen(num: int, seed: int = 1) -> dict[str, Tensor]:
    return {"observation": torch.randn(num, 3, generator=torch.Generator().manual_seed(seed)).double()}


def uniform(num: int, draws: int) -> Tensor:
    return torch.rand(num, draws, generator=torch.Generator().manual_seed(2)).double().clamp(1e-6, 1 - 1e-6)
