"""Numbers as means of distributions over fixed bins. Axes: M bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Bins:
    """`num` equal bins whose edges span `low` to `high`; numbers beyond are moved to the nearer end.

    The range should contain all values with three bins to spare.
    """

    not_a_part: ClassVar[str] = "a setting of the losses and heads"

    low: float
    high: float
    num: int

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


def read(outputs: Tensor, bins: Bins | None) -> Tensor:
    """The numbers themselves, or those that logits over bins stand for."""
    return outputs if bins is None else decoded(outputs, bins)


def shape_of(bins: Bins | None) -> tuple[int, ...]:
    """The axes that a number needs: none, or its bins."""
    return () if bins is None else (bins.num,)
