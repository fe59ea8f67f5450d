"""Inputs of bounded numbers as waves. Axes as given, the last one is numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from assay.core.spaces import Box

OCTAVES = (1.0, 2.0, 4.0)


class Waves(nn.Module):
    """x, sin(pi k x) and cos(pi k x), k = 1, 2, 4: Fourier features (arXiv:2006.10739), learned faster by perceptrons.

    x is the number in units of half its range around the centre, so that no two numbers inside the bounds look alike.
    Where the task has no finite bounds, those of the data count; without them x = y / (1 + |y|), hardly apart if large.
    """

    centre: Tensor
    half_range: Tensor
    is_bounded: Tensor

    def __init__(self, space: Box, data: Box | None = None) -> None:
        super().__init__()
        own = torch.tensor((space.low, space.high))
        given = own if data is None else torch.tensor((data.low, data.high))
        low, high = torch.where((own[1] - own[0]).isfinite(), own, given)
        is_bounded = low.isfinite() & high.isfinite()
        self.size = space.size * (1 + 2 * len(OCTAVES))
        self.register_buffer("is_bounded", is_bounded)
        self.register_buffer("centre", torch.where(is_bounded, (high + low) / 2, 0.0))
        self.register_buffer("half_range", torch.where(is_bounded, (high - low) / 2, 1.0))

    def forward(self, values: Tensor) -> Tensor:
        """Returns the features, [..., size]."""
        unit = (values - self.centre) / self.half_range
        unit = torch.where(self.is_bounded, unit, values / (1.0 + values.abs()))
        angles = torch.cat([math.pi * octave * unit for octave in OCTAVES], -1)
        return torch.cat([unit, angles.sin(), angles.cos()], -1)
