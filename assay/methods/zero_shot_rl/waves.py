"""Fourier features of coordinates, from which a perceptron learns rapidly varying functions faster."""

from __future__ import annotations

import math

import torch
from torch import Tensor

OCTAVES = (1.0, 2.0, 4.0)


def wave_size(num_inputs: int) -> int:
    """Returns the length of `waves`."""
    return num_inputs * (1 + 2 * len(OCTAVES))


def waves(values: Tensor) -> Tensor:
    """Returns x, sin(pi k x) and cos(pi k x) for k = 1, 2, 4 (Fourier features, arXiv:2006.10739), x between -1 and
    1.
    """
    angles = torch.cat([math.pi * octave * values for octave in OCTAVES], -1)
    return torch.cat([values, angles.sin(), angles.cos()], -1)
