"""Numbers as distributions over fixed bins, and back. Axes: M bins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.slots import Choice


@dataclass(frozen=True)
class Bins(Choice):
    """`num` equal bins whose edges span `low` to `high`; numbers beyond are moved to the nearer end."""

    low: float
    high: float
    num: int

    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"low": -2.0, "high": 3.0, "num": 10},)

    @property
    def width(self) -> float:
        """Of one bin."""
        return (self.high - self.low) / self.num

    def edges(self, like: Tensor) -> Tensor:
        """low = e_0 < ... < e_M = high, in the precision and on the device of `like`."""
        return self.low + self.width * torch.arange(self.num + 1, dtype=like.dtype, device=like.device)

    def centres(self, like: Tensor) -> Tensor:
        """The middle of each bin, [M]."""
        return self.low + self.width * (torch.arange(self.num, dtype=like.dtype, device=like.device) + 0.5)

    def clamped(self, number: Tensor) -> Tensor:
        """The number inside the range."""
        return number.clamp(self.low, self.high)


def decoded(logits_M: Tensor, bins: Bins) -> Tensor:
    """sum_i centre_i * softmax(logits)_i, [...]."""
    return logits_M.softmax(-1) @ bins.centres(logits_M)


def gaussian_labels(number: Tensor, bins: Bins, spread: float) -> Tensor:
    """Share of N(number, (spread * width)^2), cut to the range, in each bin, [..., M].

    Away from the ends its mean is the number up to exp(-2 (pi spread)^2) / pi of a width (5e-6 at 0.75). Within three
    widths of an end the cut pulls it inwards, by 0.69 of a width at the end itself.
    """
    scaled = (bins.edges(number) - bins.clamped(number).unsqueeze(-1)) / (spread * bins.width * math.sqrt(2.0))
    below = torch.erf(scaled)
    return (below[..., 1:] - below[..., :-1]) / (below[..., -1:] - below[..., :1])


def two_hot_labels(number: Tensor, bins: Bins) -> Tensor:
    """The number between its two nearest centres, linearly, [..., M]: exact between the outermost centres."""
    place = ((bins.clamped(number) - bins.low) / bins.width - 0.5).clamp(0.0, bins.num - 1.0).unsqueeze(-1)
    index = torch.arange(bins.num, dtype=number.dtype, device=number.device)
    return (1.0 - (index - place).abs()).clamp(min=0.0)
