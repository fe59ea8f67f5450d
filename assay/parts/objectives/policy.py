"""Policy-gradient losses: ratio level x trust region x aggregation. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Objective, RatioLevel, TrustRegion, View
from assay.parts.aggregations import TokenMean
from assay.parts.objectives.ratio import TokenRatio
from assay.parts.objectives.trust import Clip


@dataclass(frozen=True)
class PolicyGradient(Objective):
    """loss = sum_bt weight_bt * trust(ratio_bt, A_bt) / count.

    Works with discrete and continuous actions: it reads `advantage` and the recorded and current log-probabilities.
    Assumes that a credit part wrote `advantage`. Degenerate: an empty mask gives sum 0 and count 0, and no step is
    taken. Source: Sutton et al. 2000.
    """

    ratio: RatioLevel = TokenRatio()
    trust: TrustRegion = Clip()
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    first_order: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("advantage",)

    @property
    def together(self) -> str | None:
        """Returns what the aggregation needs in one micro-batch, else what the ratio needs: a group holds whole
        episodes.
        """
        return self.aggregate.together or self.ratio.together

    def count(self, batch: Experience) -> Tensor:
        return self.aggregate.count(batch)

    def __call__(self, batch: Experience, view: View) -> Loss:
        logp, advantage, mask = view.scored.logp, batch.column("advantage").detach(), batch.mask
        log_ratio = self.ratio(logp, batch)
        loss, cut = self.trust(log_ratio, advantage, logp)
        weight = self.aggregate.weigh(batch)
        weighed = torch.where(mask, loss, 0.0) * weight
        learnt = batch if batch.source is None else batch.with_columns(mask=mask & (weight != 0))
        return Loss(weighed.sum(), self.count(batch), ratio_metrics(log_ratio.detach(), cut, learnt))


def ratio_metrics(moved: Tensor, cut: Tensor, batch: Experience) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns the clipped share, mean ratio, mean squared ratio, and KL(behaviour || policy) by ratio - 1 - log
    ratio.
    """
    above = torch.expm1(moved)
    ratio = above + 1.0
    columns = torch.stack((cut.to(ratio.dtype), ratio, ratio.square(), above - moved))
    sums = (columns * batch.weight).sum((1, 2)).unbind()
    names = ("clipped", "ratio", "ratio_squared", "kl_to_old")
    return {name: (value, batch.num_decisions) for name, value in zip(names, sums, strict=True)}
