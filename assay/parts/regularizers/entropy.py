"""Entropy of some decisions, with a weight for each row. Axes: B rows, T decisions, K candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need, Scored
from assay.core.slots import Regularizer, Schedule, View, number
from assay.ops.logits import nucleus_entropy
from assay.parts.objectives.trust import bounded_ratio


def above_quantile(value_BT: Tensor, mask: Tensor, quantile: float) -> Tensor:
    """Marks the decisions whose value is above the row's quantile (linear interpolation); all if it is 0.

    Degenerate: equal values, and a row of one decision, have none above.
    """
    if quantile <= 0.0:
        return mask
    ranked = torch.where(mask, value_BT, torch.inf).sort(1).values
    place = quantile * (mask.sum(1, keepdim=True).double() - 1).clamp(min=0)
    low, high = (ranked.gather(1, one.long()) for one in (place.floor(), place.ceil()))
    return mask & (value_BT > torch.lerp(low, high, place.frac().to(low.dtype)))


def mean_above(value_BT: Tensor, mask: Tensor, quantile: float) -> Tensor:
    """Returns the mean over the marked decisions of each row, [B]; 0 where none is marked."""
    kept = above_quantile(value_BT.detach(), mask, quantile)
    return torch.where(kept, value_BT, 0.0).sum(1) / kept.sum(1).clamp(min=1)


@dataclass(frozen=True)
class MaskedEntropy(Regularizer):
    """coefficient * sum over rows of `entropy_weight` * mean of the entropies above the row's quantile `peak`.

    A decision's entropy is that inside the nucleus of total probability `mass`, among the actions in the column
    `candidates`; `crossing` keeps the action that reaches the mass, as top-p sampling does. Without a mass it is
    estimated at the recorded action by -ratio * log pi, with gradient through both factors: its mean over actions of
    the acting policy is the entropy, and so is its gradient's. Divided by the number of rows with a decision. A
    negative weight raises entropy, a positive one lowers it. Assumes that an earlier part wrote the columns.
    Degenerate: a row without marked decisions adds 0. Source: arXiv:2509.25133.
    """

    coefficient: float | Schedule = 0.005
    mass: float | None = 0.8
    crossing: bool = False
    peak: float = 0.8
    together: ClassVar[str | None] = None
    divergence: ClassVar[bool] = False  # its sign is that of the weights
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"mass": None, "peak": 0.0},)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need.LOGP} if self.mass is None else {Need.LOGP, Need.CANDIDATES})

    @property
    def reads(self) -> Mapping[str, str]:
        weight = {"entropy_weight": "B: weight of the row's entropy in the loss"}
        return weight if self.mass is None else weight | {"candidates": "BTN: likely actions and a log q of each"}

    def count(self, batch: Experience) -> Tensor:
        return batch.mask.any(1).sum()

    def entropy(self, batch: Experience, scored: Scored) -> Tensor:
        """Returns the entropy of each decision with gradient, [B, T]."""
        if self.mass is None:
            return -bounded_ratio((scored.logp - batch.logp.detach()) * batch.mask) * scored.logp
        assert scored.candidates is not None, "the engine provides what `needs` declares"
        return nucleus_entropy(scored.candidates, self.mass, self.crossing)

    def __call__(self, batch: Experience, view: View) -> Loss:
        mean_B = mean_above(self.entropy(batch, view.scored), batch.mask, self.peak)
        value = (batch.column("entropy_weight").detach() * mean_B).sum()
        metrics = {"masked_entropy": (mean_B.detach().sum(), self.count(batch))}
        return Loss(number(self.coefficient) * value, self.count(batch), metrics)
