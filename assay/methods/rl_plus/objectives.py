"""One loss for the policy's own rows and for demonstrations. Axes: B sequences, T decisions.

The column `source` says where a row comes from; without it all rows are the policy's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need, Origin
from assay.core.slots import Aggregation, Annotation, Objective, Over, TrustRegion, View
from assay.parts.aggregations import TokenMean, Weighed
from assay.parts.objectives.policy import ratio_metrics
from assay.parts.objectives.trust import Clip, bounded_ratio


def is_external(batch: Experience) -> Tensor:
    """Returns whether a row is not the policy's own, bool [B]."""
    if batch.source is None:
        return torch.zeros(len(batch), dtype=torch.bool, device=batch.mask.device)
    return batch.source != int(Origin.POLICY)


@dataclass(frozen=True)
class LogpWhenShown(Annotation):
    """The column `logp_shown`: log pi_old of demonstrated decisions, by the policy that gathered; 0 in own rows."""

    column: str = "logp_shown"
    model: str = "actor"

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns log-probabilities [B, T]; only demonstrations are scored."""
        found, rows = torch.zeros_like(experience.logp), is_external(experience).nonzero().squeeze(1)
        if not len(rows):
            return found

        def score(actor: Any, part: Experience) -> Tensor:
            logp: Tensor = actor.score(part, frozenset({Need.LOGP})).logp
            return logp

        return found.index_copy(0, rows, over(experience.rows(rows), score).to(found.dtype))


@dataclass(frozen=True)
class HybridPolicy(Weighed, Objective):
    """Trains own rows by a trust region, the others by multiple importance sampling with emphasis on the unlikely.

        own:       trust(rho, A),   rho = pi / pi_old
        others:    -r A (1 - pi)^focus,   r = 2 pi / (pi_old + pi_other),   pi_other = (pi_old + uniform) / 2

    RL-PLUS (arXiv:2508.00222). The behaviour policy of the other rows is unknown: pi_other is half the acting policy,
    half the uniform one, whose probability is the column `uniform`. r is the balance heuristic's weight, at most
    4/3 rho, and never clipped. (1 - pi)^focus has no gradient; it reduces the weight of decisions that are already
    likely, and focus (gamma) 0 disables it. Densities above 1 count as 1 there. `uniform` other than 0 replaces the
    column: 1 is the released code, with which r is at most 4 pi and vanishes on unlikely decisions. Degenerate:
    without other rows it is the plain policy gradient.
    """

    trust: TrustRegion = Clip()
    focus: float = 0.5
    uniform: float = 0.0
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({Need.LOGP, LogpWhenShown()})
    first_order: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("advantage", "uniform")
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "uniform": lambda batch: torch.full((len(batch),), 0.25, dtype=batch.reward.dtype)
    }

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over all decisions."""
        logp, advantage, mask = view.scored.logp, batch.column("advantage").detach(), batch.mask
        external = is_external(batch).unsqueeze(1) & mask
        logp_old = torch.where(external, batch.column("logp_shown"), batch.logp).detach()
        log_ratio = (logp - logp_old) * mask
        own, cut = self.trust(log_ratio, advantage, logp)
        old, uniform = bounded_ratio(logp_old), self.uniform or batch.column("uniform").unsqueeze(1).to(logp.dtype)
        ratio = 2.0 * bounded_ratio(logp) / (old + 0.5 * (old + uniform))
        unlikely = (1.0 - bounded_ratio(logp.detach()).clamp(max=1.0)) ** self.focus
        loss = torch.where(external, -ratio * advantage * unlikely, torch.where(mask, own, 0.0))
        shown = (torch.where(external, ratio.detach(), 0.0).sum(), external.sum())
        metrics = ratio_metrics(log_ratio.detach(), cut, batch.with_columns(mask=mask & ~external))
        return Loss((loss * self.aggregate.weigh(batch)).sum(), self.count(batch), metrics | {"ratio_of_shown": shown})
