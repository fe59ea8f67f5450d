"""Choices by rank, of decisions of a whole batch. Values and marks have one shape, any."""

from __future__ import annotations

import torch
from torch import Tensor


def smallest(value: Tensor, candidate: Tensor, num: int) -> Tensor:
    """Marks the `num` candidates with the smallest values, and those that tie with the last of them."""
    found = value[candidate]
    if not len(found) or num < 1:
        return torch.zeros_like(candidate)
    last = found.sort().values[min(num, len(found)) - 1]
    return candidate & (value <= last)
