"""Inputs of forward-backward representations: Fourier features of numbers in units of their range."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from assay.core.spaces import Box

OCTAVES = (1.0, 2.0, 4.0)


class Waves(nn.Module):
    """x, sin(pi k x) and cos(pi k x) for k = 1, 2, 4: Fourier features (arXiv:2006.10739), from which a perceptron
    learns rapidly varying functions faster.

    x is the number in units of half its range around the centre, so that no two numbers inside the bounds look alike.
    Where the task has no finite bounds, those of the data count (`ForwardBackwardActor`); without them x = y / (1 +
    |y|), which hardly tells large numbers apart.
    """

    centre: Tensor
    half_range: Tensor
    is_bounded: Tensor

    def __init__(self, space: Box) -> None:
        super().__init__()
        low, high = torch.tensor(space.low), torch.tensor(space.high)
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


def is_finite(space: Box) -> bool:
    """Returns whether every number has finite bounds."""
    return all(map(math.isfinite, (*space.low, *space.high)))


def filled(space: Box, data: Box | None) -> Box:
    """Returns the space with the data's bounds where it has no finite ones of its own."""
    if data is None:
        return space
    known = zip(space.low, space.high, data.low, data.high, strict=True)
    pairs = [(low, high) if math.isfinite(high - low) else (least, most) for low, high, least, most in known]
    return Box(*zip(*pairs, strict=True))


def range_of(values: Tensor) -> Box:
    """Returns the smallest and largest of each number [N, D]; a constant one has a range of 1 around it."""
    low, high = values.double().amin(0), values.double().amax(0)
    room = torch.where(high > low, 0.0, 0.5)
    return Box(tuple((low - room).tolist()), tuple((high + room).tolist()))
