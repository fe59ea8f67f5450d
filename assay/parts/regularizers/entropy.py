"""Entropy of some decisions, with a weight for each row. Axes: B rows, T decisions, K candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need, Scored
from assay.core.slots import Choice, Regularizer, Schedule, View, number
from assay.ops.logits import nucleus_entropy
from assay.parts.objectives.trust import bounded_ratio


class EntropyOf(Choice, Protocol):
    """What a decision's entropy is computed from: a setting of `MaskedEntropy`."""

    @property
    def needs(self) -> frozenset[Need]:
        """Inputs that it reads besides the record."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that it reads and that another part writes."""

    def __call__(self, batch: Experience, scored: Scored) -> Tensor:
        """Returns the entropy of each decision with gradient, [B, T]."""


@dataclass(frozen=True)
class OfNucleus(EntropyOf):
    """The entropy inside the nucleus of total probability `mass`, among the actions in the column `candidates`.

    `crossing` keeps the action that reaches the mass, as top-p sampling does; SIREN (arXiv:2509.25133) does not.
    """

    mass: float = 0.8
    crossing: bool = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.CANDIDATES})
    reads: ClassVar[tuple[str, ...]] = ("candidates",)

    def __call__(self, batch: Experience, scored: Scored) -> Tensor:
        """Returns the entropy of the nucleus, 0 where it is empty."""
        assert scored.candidates is not None, "the engine provides what `needs` declares"
        return nucleus_entropy(scored.candidates, self.mass, self.crossing)


@dataclass(frozen=True)
class OfSample(EntropyOf):
    """-ratio * log pi of the recorded action, with gradient through both factors: its mean over actions of the acting
    policy is the entropy, and so is its gradient's. Needs no distribution.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    reads: ClassVar[tuple[str, ...]] = ()

    def __call__(self, batch: Experience, scored: Scored) -> Tensor:
        """Returns the estimate."""
        moved = (scored.logp - batch.logp.detach()) * batch.mask
        return -bounded_ratio(moved) * scored.logp


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

    Divided by the number of rows with a decision. A negative weight raises entropy, a positive one lowers it. Assumes
    that an earlier part wrote the column `entropy_weight` [B]. Degenerate: a row without marked decisions adds 0.
    """

    coefficient: float | Schedule = 0.005
    of: EntropyOf = OfNucleus()
    peak: float = 0.8
    together: ClassVar[str | None] = None
    divergence: ClassVar[bool] = False  # its sign is that of the weights
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"of": OfSample(), "peak": 0.0},)
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "entropy_weight": lambda batch: batch.column("scored.logp").sum(1)
    }

    @property
    def needs(self) -> frozenset[Need]:
        """The needs of the entropy."""
        return self.of.needs

    @property
    def reads(self) -> tuple[str, ...]:
        """The weights, and what the entropy reads."""
        return ("entropy_weight", *self.of.reads)

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of rows with a decision."""
        return batch.mask.any(1).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over rows."""
        mean_B = mean_above(self.of(batch, view.scored), batch.mask, self.peak)
        value = (batch.column("entropy_weight").detach() * mean_B).sum()
        metrics = {"masked_entropy": (mean_B.detach().sum(), self.count(batch))}
        return Loss(number(self.coefficient) * value, self.count(batch), metrics)
