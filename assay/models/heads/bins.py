"""Numbers as means of distributions over fixed bins. Axes: M bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError


@dataclass(frozen=True)
class Bins:
    """`num` equal bins whose edges span `low` to `high`; numbers outside are clamped.

    The range should contain all values with three bins to spare.
    """

    not_a_part: ClassVar[str] = "a setting of the losses and heads"

    low: float
    high: float
    num: int

    @property
    def width(self) -> float:
        """The width of one bin."""
        return (self.high - self.low) / self.num

    def edges(self, like: Tensor) -> Tensor:
        """Returns low = e_0 < ... < e_M = high, in the precision and on the device of `like`."""
        return self.low + self.width * torch.arange(self.num + 1, dtype=like.dtype, device=like.device)

    def centres(self, like: Tensor) -> Tensor:
        """Returns the middle of each bin, [M]."""
        return self.low + self.width * (torch.arange(self.num, dtype=like.dtype, device=like.device) + 0.5)

    def clamped(self, number: Tensor) -> Tensor:
        """Returns the number clamped to the range."""
        return number.clamp(self.low, self.high)


def decoded(logits_M: Tensor, bins: Bins) -> Tensor:
    """Returns sum_i centre_i * softmax(logits)_i, [...]."""
    return logits_M.softmax(-1) @ bins.centres(logits_M)


def read(outputs: Tensor, bins: Bins | None) -> Tensor:
    """Returns the outputs themselves, or the means of their bins if they are logits."""
    return outputs if bins is None else decoded(outputs, bins)


def shape_of(bins: Bins | None) -> tuple[int, ...]:
    """Returns the axes of one value: none, or its bins; raises AssayError if these have no range."""
    if bins is not None and not bins.low < bins.high:
        what = f"bins.low={bins.low:g} is not below bins.high={bins.high:g}, so that no value is between them"
        raise AssayError(f"{what}. Set both to the range of returns: --set bins.low=... --set bins.high=...")
    return () if bins is None else (bins.num,)
