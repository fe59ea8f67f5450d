"""Units of continuous actions: half-ranges around the middle of the bounds. Axes: A action dimensions.

    scaled = (action - centre) / half_range,  in [-1, 1] inside the bounds

The record, the task and exported policies have actions in the task's units. Networks, densities, entropies, noise and
distances are in half-ranges, so that a torque in Nm and the same torque in mNm train the same policy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from assay.core.spaces import Box, Space

PLACEHOLDER = 1e6
"""A half-range above this is no range: such bounds stand for none (the largest float32, for example)."""


def units_of(low: float, high: float) -> tuple[float, float]:
    """Returns (centre, half range) of one dimension; (0, 1) where bounds are infinite, equal or placeholders."""
    half = (high - low) / 2
    return ((high + low) / 2, half) if math.isfinite(half) and 0.0 < half <= PLACEHOLDER else (0.0, 1.0)


class ActionUnits(nn.Module):
    """Converts actions between the task's units and half-ranges. Degenerate: actions that are no vectors, and
    dimensions without a range, stay as they are.

    The numbers are saved with the weights: weights that were learned in other units do not load.
    """

    centre: Tensor
    half_range: Tensor

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.is_vector = isinstance(space, Box)
        if isinstance(space, Box):
            centre, half_range = zip(*map(units_of, space.low, space.high), strict=True)
            self.register_buffer("centre", torch.tensor(centre))
            self.register_buffer("half_range", torch.tensor(half_range))

    def forward(self, action: Tensor) -> Tensor:
        """Returns an action of the task in half-ranges."""
        return (action - self.centre) / self.half_range if self.is_vector else action

    def of_task(self, scaled: Tensor) -> Tensor:
        """Returns an action in half-ranges in the task's units."""
        return self.centre + self.half_range * scaled if self.is_vector else scaled
