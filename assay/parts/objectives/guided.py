"""The policy's own decisions by a trust region, decisions of others by a weight. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss, Need, Origin
from assay.core.slots import Aggregation, Annotation, Choice, Objective, TrustRegion, View
from assay.parts.aggregations import TokenMean, Weighed
from assay.parts.objectives.policy import ratio_metrics
from assay.parts.objectives.trust import Clip, bounded_ratio

FOREIGN = "foreign"
"""Column [B, T]: decisions that the policy did not take, in rows where it took others."""


def is_foreign(batch: Experience) -> Tensor:
    """Returns whether another took a decision, bool [B, T]: the column `foreign` if there is one, else all of the rows
    whose `source` is not the policy.
    """
    if FOREIGN in batch.extra:
        return batch.column(FOREIGN).bool() & batch.mask
    if batch.source is None:
        return torch.zeros_like(batch.mask)
    return (batch.source != int(Origin.POLICY)).unsqueeze(1) & batch.mask


class ForeignWeight(Choice, Protocol):
    """What stands for the ratio of decisions whose probability under their author is unknown; an option of `Guided`.

    Laws: it grows with the probability of the decision, and keeps its gradient. Source: arXiv:2504.14945. Degenerate:
    probability 0 has weight 0.
    """

    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()
    reads: ClassVar[Mapping[str, str]] = {}
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {}

    def __call__(self, logp: Tensor, batch: Experience) -> Tensor:
        """Returns the weight of each decision, [B, T], with gradient."""


@dataclass(frozen=True)
class Shaped(ForeignWeight):
    """f(p) = p / (p + gamma), p the policy's probability of the decision: unlikely decisions learn more than by p.

    The slope in log p is gamma p / (p + gamma)^2, largest (1/4) at p = gamma, where the plain weight p has gamma
    (LUFFY, arXiv:2504.14945, which takes 0.1). Degenerate: gamma 0 has no gradient and is refused. Assumes that
    unlikely decisions of the author are worth learning.
    """

    gamma: float = 0.1
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"gamma": 1.0})

    def __post_init__(self) -> None:
        if self.gamma <= 0.0:
            raise AssayError(f"Shaped.gamma is {self.gamma}. Use a number above 0, such as 0.1")

    def __call__(self, logp: Tensor, batch: Experience) -> Tensor:
        prob = bounded_ratio(logp)
        return prob / (prob + self.gamma)


@dataclass(frozen=True)
class Guided(Weighed, Objective):
    """Trains own decisions by a trust region, those of others by `weight`, with one denominator.

        own:       trust(rho, A),   rho = pi / pi_old
        others:    -w A,            w = weight(log pi), never clipped

    Others' decisions are those of rows whose `source` is not the policy, or those in the column `foreign`, where a row
    has both: no ratio is formed with what was recorded for them. Degenerate: without others' decisions it is the plain
    policy gradient. Source: arXiv:2504.14945. Assumes a column `source` or `foreign`.
    """

    trust: TrustRegion = Clip()
    weight: ForeignWeight = Shaped()
    aggregate: Aggregation = TokenMean()
    first_order: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        return frozenset({Need.LOGP}) | self.weight.needs

    @property
    def reads(self) -> Mapping[str, str]:
        """Columns: the advantage, and what the weight reads."""
        return {"advantage": "BT", **self.weight.reads}

    @property
    def fills(self) -> Mapping[str, Callable[[Experience], Tensor]]:
        """Columns that laws fill in: those of the weight."""
        return self.weight.fills

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over all decisions."""
        logp, advantage, mask = view.scored.logp, batch.column("advantage").detach(), batch.mask
        foreign = is_foreign(batch)
        log_ratio = (logp - torch.where(foreign, logp, batch.logp).detach()) * mask
        own, cut = self.trust(log_ratio, advantage, logp)
        weight = self.weight(logp, batch)
        loss = torch.where(foreign, -weight * advantage, torch.where(mask, own, 0.0))
        shown = (torch.where(foreign, weight.detach(), 0.0).sum(), foreign.sum())
        metrics = ratio_metrics(log_ratio.detach(), cut, batch.with_columns(mask=mask & ~foreign))
        return Loss((loss * self.aggregate.weigh(batch)).sum(), self.count(batch), metrics | {"foreign_weight": shown})
