"""Maximum likelihood of recorded decisions, for language (sft) and control (bc). Axes: B, T."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Objective, View
from assay.parts.aggregations import TokenMean, Weighed


@dataclass(frozen=True)
class LogLikelihood(Weighed, Objective):
    """loss = -sum_bt weight_bt * log pi(a_bt | s_bt) / count. Degenerate: an empty mask gives sum 0 and count 0.

    Source: maximum likelihood, Fisher 1922. Assumes that all data are worth imitating.
    """

    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    breaks: ClassVar[dict[str, str]] = {
        "zero_credit": "likelihood does not read credit: every recorded decision counts"
    }

    def __call__(self, batch: Experience, view: View) -> Loss:
        nll = -view.scored.logp * self.aggregate.weigh(batch)
        metrics = {"nll": ((-view.scored.logp.detach() * batch.mask).sum(), batch.mask.sum())}
        return Loss(nll.sum(), self.count(batch), metrics)
