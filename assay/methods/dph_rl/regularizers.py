"""Divergences to the start policy, on samples that it gave before training. Axes: B rows, T decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need, Origin
from assay.core.slots import Aggregation, Regularizer, View
from assay.parts.aggregations import TokenMean, Weighed

LARGEST_LOG_RATIO, LARGEST = 20.0, 10.0
"""Bounds of log u and of f(u), as in the released code: beyond them a decision has no gradient."""


def forward_kl(log_u: Tensor) -> Tensor:
    """Returns u - 1 - log u: its mean over samples of the start is KL(start || policy), and it is 0 only at u = 1."""
    return torch.expm1(log_u) - log_u


def jensen_shannon(log_u: Tensor) -> Tensor:
    """Returns u log u - (u + 1) log((u + 1) / 2): its mean over samples of the start is twice the JS divergence."""
    u = log_u.exp()
    return u * log_u - (u + 1.0) * ((u + 1.0) / 2.0).log()


@dataclass(frozen=True)
class Alpha:
    """(u^(1 - a) - (1 - a) u - a) / (a (a - 1)): close to the forward KL for a near 1, the reverse KL for a near 0."""

    alpha: float = 0.2
    not_a_part: ClassVar[str] = "a setting of CoveringDivergence"

    def __call__(self, log_u: Tensor) -> Tensor:
        """Returns the divergence of each decision."""
        a = self.alpha
        return (((1.0 - a) * log_u).exp() - (1.0 - a) * log_u.exp() - a) / (a * (a - 1.0))


@dataclass(frozen=True)
class OfOrigin(Aggregation):
    """Applies `aggregate` to the rows whose column `source` has the number `origin`: the policy's own by default.

    Rows of other origin have weight 0 and are not counted. Without the column all rows are the policy's own.
    """

    aggregate: Aggregation = TokenMean()
    origin: int = int(Origin.POLICY)

    @property
    def together(self) -> str | None:
        """Returns what the inner aggregation needs."""
        return self.aggregate.together

    def rows(self, batch: Experience) -> Experience:
        """Returns the batch with the rows of other origin masked."""
        if batch.source is None:
            return batch if self.origin == int(Origin.POLICY) else replace(batch, mask=torch.zeros_like(batch.mask))
        return replace(batch, mask=batch.mask & (batch.source == self.origin).unsqueeze(1))

    def weigh(self, batch: Experience) -> Tensor:
        """Returns the weights of the inner aggregation, 0 in rows of other origin."""
        return self.aggregate.weigh(self.rows(batch))

    def count(self, batch: Experience) -> Tensor:
        """Returns the count over the rows of this origin."""
        return self.aggregate.count(self.rows(batch))


@dataclass(frozen=True)
class CoveringDivergence(Weighed, Regularizer):
    """coefficient * f(u) of the decisions of stored rows, u = pi / pi_start with the recorded log-probability.

    Only rows of the aggregation's origin count: samples of the start policy (OLDER_SELF). Mass-covering: what the
    start did and the policy no longer does costs without bound. Degenerate: without such rows sum and count are 0.
    """

    coefficient: float = 0.02
    f: Callable[[Tensor], Tensor] = forward_kl
    aggregate: Aggregation = OfOrigin(TokenMean(), int(Origin.OLDER_SELF))
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over stored decisions."""
        weight = self.aggregate.weigh(batch)
        log_u = torch.where(weight != 0, view.scored.logp - batch.logp.detach(), 0.0)
        value = self.f(log_u.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)).clamp(-LARGEST, LARGEST) * weight
        count = self.count(batch)
        return Loss(self.coefficient * value.sum(), count, {"divergence_from_start": (value.detach().sum(), count)})
