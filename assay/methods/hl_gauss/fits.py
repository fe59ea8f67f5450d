"""Value learning by classification: the target becomes a label over the critic's bins, fitted by cross-entropy.

    loss = -sum_i label_i(y) * log softmax(outputs)_i          y: any target

The gradient in the outputs is softmax - label, at most 2 in sum, however large the error. Targets beyond the bins are
clipped to the nearer end and counted in `beyond_bins`. Axes: B, T, N critics, M bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from assay.core.record import Experience, Regressed
from assay.core.slots import Prediction, Regression, View
from assay.methods.hl_gauss.bins import gaussian_labels, two_hot_labels
from assay.models.heads.bins import Bins, decoded


class Label(Protocol):
    """Encodes a number as a distribution over bins."""

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """Returns labels [..., M] that sum to one."""


@dataclass(frozen=True)
class HlGauss:
    """A Gaussian of `spread` bin widths around the target, discretised (arXiv:2403.03950)."""

    spread: float = 0.75
    not_a_part: ClassVar[str] = "a setting of the fit below"

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """Returns labels that sum to one."""
        return gaussian_labels(number, bins, self.spread)


@dataclass(frozen=True)
class TwoHot:
    """The target interpolated between its two nearest bins."""

    not_a_part: ClassVar[str] = "a setting of the fit below"

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """Returns labels that sum to one."""
        return two_hot_labels(number, bins)


def cross_entropy(outputs_M: Tensor, target: Tensor, bins: Bins, label: Label) -> Tensor:
    """Returns -sum_i label_i(target) * log softmax(outputs)_i, [...]; no gradient in the target."""
    return -(label(target.detach(), bins) * outputs_M.log_softmax(-1)).sum(-1)


def is_beyond(target: Tensor, bins: Bins) -> Tensor:
    """Returns whether the target is outside the bins."""
    return (target < bins.low) | (target > bins.high)


@dataclass(frozen=True)
class CrossEntropy(Regression):
    """Cross-entropy of a critic's bins to the target's label; every member of an ensemble has the same target."""

    label: Label = HlGauss()

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the losses; the target is encoded once, from decoded values."""
        critic = view.model(of.model)
        outputs = of.outputs(critic, rows)
        loss = cross_entropy(outputs, target, critic.bins, self.label)
        beyond = is_beyond(target, critic.bins).to(target)
        return Regressed(loss, decoded(outputs.detach(), critic.bins), {"beyond_bins": beyond})
