"""A regularizer towards the behaviour policy at marked decisions. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Regularizer, Schedule, View, number
from assay.parts.aggregations import TokenMean, Weighed


def above_average(batch: Experience) -> Tensor:
    """Returns stand-in marks for the contract tests; masked columns are marked too, since they must be ignored."""
    return (batch.column("advantage") > 0) | ~batch.mask


@dataclass(frozen=True)
class KlWhereMarked(Weighed, Regularizer):
    """coefficient * |log pi - log pi_old| at the decisions that the column `high_covariance` marks, 0 at the others.

    KL-Cov (arXiv:2505.22617), with the estimator of its released code: a gradient of constant size at any distance,
    rounding errors included, and 0 at equality. Assumes that a credit part wrote the marks.
    Degenerate: without marks the sum is 0; the count is that of all decisions.
    """

    coefficient: float | Schedule = 1.0
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    divergence: ClassVar[bool] = False  # zero at the behaviour policy, not at the reference
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"high_covariance": above_average}
    reads: ClassVar[tuple[str, ...]] = ("high_covariance",)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over marked decisions."""
        marked = batch.column("high_covariance") & batch.mask
        log_ratio = torch.where(marked, view.scored.logp - batch.logp.detach(), 0.0)
        value = log_ratio.abs() * self.aggregate.weigh(batch)
        metrics = {"marked": (marked.sum(), batch.num_decisions)}
        return Loss(number(self.coefficient) * value.sum(), self.count(batch), metrics)
