"""Regularizers on the policy's distribution: KL to a reference, entropy. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Regularizer, Schedule, View, number
from assay.ops import divergences
from assay.parts.aggregations import TokenMean, Weighed

NEVER = -1e4
"""log q of a decision that is not held to q: below every log-probability."""


@dataclass(frozen=True)
class KlToReference(Weighed, Regularizer):
    """coefficient * estimate of KL(pi || ref) at each decision, with gradient.

    `estimator` is k1, k2 or k3 of `ops.divergences`. As a loss on samples of the current policy, k2 has the gradient of
    KL(pi || ref), k3 that of KL(ref || pi), and k1 an expected gradient of 0 (use KlInReward instead). Degenerate: at
    the reference the sum is 0; k2 and k3 have no gradient there, k1 has one. Source: arXiv:2203.02155; Schulman 2020
    for the estimators. Assumes a copy of the policy as reference.
    """

    coefficient: float | Schedule = 0.05
    estimator: Callable[[Tensor], Tensor] = divergences.k3
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.REFERENCE})

    @property
    def divergence(self) -> bool:
        """Returns whether each value is not negative: true for k2 and k3, not for k1."""
        return self.estimator is not divergences.k1

    def __call__(self, batch: Experience, view: View) -> Loss:
        log_ratio = (view.scored.logp - batch.column("logp_ref").detach()) * batch.mask
        value = self.estimator(log_ratio) * self.aggregate.weigh(batch)
        metrics = {"kl_to_reference": ((divergences.k3(log_ratio.detach()) * batch.mask).sum(), batch.mask.sum())}
        return Loss(number(self.coefficient) * value.sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class KlWhereHeld(Weighed, Regularizer):
    """coefficient * estimator(log pi - log q) at some decisions; log q is the column `logp_held`, NEVER at the others.

    Assumes that an earlier part wrote the column [B, T], and that the estimator is 0 at 0. Degenerate: if no decision
    is held the sum is 0; the count is that of all decisions. Source: arXiv:2505.22617.
    """

    coefficient: float | Schedule = 1.0
    estimator: Callable[[Tensor], Tensor] = divergences.absolute
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    divergence: ClassVar[bool] = False  # zero at q, not at the reference
    reads: ClassVar[Mapping[str, str]] = {"logp_held": "BT: log q that the decision is held to"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        towards = batch.column("logp_held").detach()
        held = batch.mask & (towards > NEVER)
        distance = self.estimator(torch.where(held, view.scored.logp - towards, 0.0))
        metrics = {"held": (held.sum(), batch.num_decisions)}
        total = number(self.coefficient) * (distance * self.aggregate.weigh(batch)).sum()
        return Loss(total, self.count(batch), metrics)


@dataclass(frozen=True)
class EntropyBonus(Weighed, Regularizer):
    """-coefficient * entropy of each decision's distribution: keeps the policy from collapsing.

    Degenerate: coefficient 0 adds nothing and still reports the entropy. Source: Williams & Peng 1991. Assumes an actor
    whose entropy can be computed.
    """

    coefficient: float | Schedule = 0.01
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.ENTROPY})

    def __call__(self, batch: Experience, view: View) -> Loss:
        entropy = view.scored.entropy
        assert entropy is not None, "the engine provides what `needs` declares"
        value = entropy * self.aggregate.weigh(batch)
        metrics = {"entropy": ((entropy.detach() * batch.weight).sum(), batch.num_decisions)}
        return Loss(-number(self.coefficient) * value.sum(), self.count(batch), metrics)
