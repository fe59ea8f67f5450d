"""The fit of a classifier: a logit to a probability. Axes: B sequences, T decisions, N critics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from assay.core.record import Experience, Regressed
from assay.core.slots import Prediction, Regression, View


@dataclass(frozen=True)
class Logistic(Regression):
    """-y log p - (1 - y) log(1 - p),  p = sigmoid(prediction): binary cross-entropy; the value that it reports is p.

    Free logits become log(y / (1 - y)) of the mean target y; between two samples of equal weight, the logarithm of the
    ratio of their densities. Degenerate: if all targets are 0, or all are 1, the logit falls or grows without bound.
    Source: Cox 1958. Assumes targets between 0 and 1.
    """

    breaks: ClassVar[dict[str, str]] = {
        "pulls": "the target is a probability: the prediction, its logit, goes elsewhere"
    }

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Of every member of an ensemble."""
        logit = of(view.model(of.model), rows)
        return Regressed(functional.softplus(logit) - target * logit, logit.sigmoid())
