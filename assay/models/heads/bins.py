"""Numbers as means of distributions: over fixed bins, or given by quantiles. Axes: M bins or quantiles."""

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


def midpoints(like: Tensor, num: int) -> Tensor:
    """Returns (i + 1/2) / num, [num]: the levels of `num` quantiles of equal weight."""
    return (torch.arange(num, dtype=like.dtype, device=like.device) + 0.5) / num


@dataclass(frozen=True)
class Quantiles:
    """`num` quantiles of a return at the levels (i + 1/2) / num, whose mean is the value (arXiv:1710.10044).

    They have no range that a task would have to tell. Nothing sorts them: the loss says which level each output has.
    """

    not_a_part: ClassVar[str] = "a setting of the heads"

    num: int = 200


def read(outputs: Tensor, bins: Bins | Quantiles | None) -> Tensor:
    """Returns the outputs themselves, the means of their bins if they are logits, or the means of quantiles."""
    if isinstance(bins, Quantiles):
        return outputs.mean(-1)
    return outputs if bins is None else decoded(outputs, bins)


def shape_of(bins: Bins | Quantiles | None) -> tuple[int, ...]:
    """Returns the axes of one value: none, its bins or its quantiles; raises AssayError for bins without a range, and
    for no quantiles.
    """
    if isinstance(bins, Quantiles) and bins.num < 1:
        raise AssayError(f"a value of {bins.num} quantiles has no mean. Use 1 or more: --set bins.num=200")
    if isinstance(bins, Bins) and not bins.low < bins.high:
        what = f"bins.low={bins.low:g} is not below bins.high={bins.high:g}, so that no value is between them"
        raise AssayError(f"{what}. Set both to the range of returns: --set bins.low=... --set bins.high=...")
    return () if bins is None else (bins.num,)


def two_hot_labels(number: Tensor, bins: Bins) -> Tensor:
    """Interpolates the number linearly between its two nearest centres, [..., M]: exact between the outermost
    centres.
    """
    place = ((bins.clamped(number) - bins.low) / bins.width - 0.5).clamp(0.0, bins.num - 1.0).unsqueeze(-1)
    index = torch.arange(bins.num, dtype=number.dtype, device=number.device)
    return (1.0 - (index - place).abs()).clamp(min=0.0)
