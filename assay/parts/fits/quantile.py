"""Quantile regression: a critic's quantiles to samples of the return. Axes: B, T, N critics, M quantiles, K samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience, Regressed
from assay.core.slots import Prediction, Regression, View
from assay.models.heads.bins import midpoints


def quantile_huber(outputs_M: Tensor, samples_K: Tensor, level_M: Tensor, limit: float) -> Tensor:
    """Returns the sum over M quantiles of the mean over K samples of |level - 1(u < 0)| * h(u) / limit, u = sample -
    quantile, where h is u^2 / 2 up to the limit and limit * (|u| - limit / 2) beyond; with limit 0, |u| in its place.
    """
    gap = samples_K.unsqueeze(-2) - outputs_M.unsqueeze(-1)
    size = gap.abs()
    if limit:
        size = torch.where(size <= limit, gap.square() / (2.0 * limit), size - limit / 2.0)
    return ((level_M.unsqueeze(-1) - (gap < 0).to(gap.dtype)).abs() * size).mean(-1).sum(-1)


@dataclass(frozen=True)
class QuantileHuber(Regression):
    """sum_i mean_k |level_i - 1(u < 0)| * h(u) / limit,  u = y_k - quantile_i,  level_i = (i + 1/2) / M: QR-DQN
    (arXiv:1710.10044).

    A target [K, B, T] holds K samples of the return, or its quantiles; [B, T] is one. With `averaged` the mean over
    quantiles is in place of their sum (TQC). Degenerate: limit 0 is plain quantile regression; a critic without
    quantiles has one, the median. Assumes samples of equal weight.
    """

    limit: float = 1.0
    averaged: bool = False

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the losses of every member of an ensemble, and the mean of their values."""
        critic = view.model(of.model)
        outputs = of.outputs(critic, rows)
        if critic.bins is None:
            outputs = outputs.unsqueeze(-1)
        samples = target.unsqueeze(-1) if target.dim() == 2 else target.movedim(0, -1)
        num = outputs.shape[-1]
        loss = quantile_huber(outputs, samples, midpoints(outputs, num), self.limit)
        value = outputs.detach().mean(-1)
        return Regressed(loss / num if self.averaged else loss, value.mean(0) if value.dim() > 2 else value)
