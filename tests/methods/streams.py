"""Records of a stream, and models that answer what they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import View
from assay.core.spaces import Box, Discrete, Spec

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Discrete(2), horizon=10)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stream_of(num: int, terminal: Any = (), truncated: Any = ()) -> Experience:
    """One row of `num` decisions and a last context."""
    mask = torch.ones(1, num + 1, dtype=torch.bool)
    mask[:, -1] = False
    ends = [torch.zeros_like(mask) for _ in range(2)]
    for flags, places in zip(ends, (terminal, truncated), strict=True):
        flags[0, list(places)] = True
    context = {"observation": normal(1, 1, num + 1, 3)}
    action = torch.arange(num + 1).remainder(2).unsqueeze(0)
    return Experience(context, action, mask, torch.zeros(1, num + 1).double(), normal(2, 1, num + 1) * mask, *ends)


@dataclass
class Models(View):
    """Models by name, with the actor's scores."""

    models: dict[str, Any]
    scored: Any = None

    def model(self, name: str) -> Any:
        return self.models[name]
