"""Labels over fixed bins. Axes: M bins."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.models.heads.bins import Bins


def gaussian_labels(number: Tensor, bins: Bins, spread: float) -> Tensor:
    """Returns the share of N(number, (spread * width)^2), truncated to the range, in each bin, [..., M].

    Away from the ends its mean is the number up to exp(-2 (pi spread)^2) / pi of a width (5e-6 at 0.75). Within three
    widths of an end the truncation pulls it inwards, by 0.69 of a width at the end itself.
    """
    scaled = (bins.edges(number) - bins.clamped(number).unsqueeze(-1)) / (spread * bins.width * math.sqrt(2.0))
    below = torch.erf(scaled)
    return (below[..., 1:] - below[..., :-1]) / (below[..., -1:] - below[..., :1])


def two_hot_labels(number: Tensor, bins: Bins) -> Tensor:
    """Interpolates the number linearly between its two nearest centres, [..., M]: exact between the outermost
    centres.
    """
    place = ((bins.clamped(number) - bins.low) / bins.width - 0.5).clamp(0.0, bins.num - 1.0).unsqueeze(-1)
    index = torch.arange(bins.num, dtype=number.dtype, device=number.device)
    return (1.0 - (index - place).abs()).clamp(min=0.0)
