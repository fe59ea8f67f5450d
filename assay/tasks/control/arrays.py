"""What numpy and torch call differently, so that simple dynamics are written once. Axes: D numbers of a state, N.

A state is an array of numpy on the CPU, or a tensor on any device; operations that both spell alike are used as they
are, through `namespace`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = Any
"""An array of numpy, or a tensor."""


def namespace(array: Array) -> Any:
    """Returns the module with the functions on an array: torch for tensors, else numpy."""
    return torch if isinstance(array, Tensor) else np


def as_float32(array: Array) -> Array:
    """Returns the numbers in float32."""
    return array.float() if isinstance(array, Tensor) else array.astype(np.float32)


def as_rows(array_DN: Array) -> Tensor:
    """Returns numbers [D, N] as a tensor [N, D] in float32, in memory of its own."""
    if isinstance(array_DN, Tensor):
        return array_DN.T.float().clone(memory_format=torch.contiguous_format)
    return torch.from_numpy(array_DN.T.astype(np.float32, order="C"))
