"""Losses that pull the policy's distribution towards a teacher's. Axes: B rows, T columns, K candidates.

The teacher's distribution is the column `candidates` [B, T, K, 2]: K actions of each decision and log q of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Objective, View
from assay.ops.divergences import forward_kl, jensen_shannon, reverse_kl, with_tail
from assay.parts.aggregations import TokenMean
from assay.parts.objectives.policy import ratio_metrics


@dataclass(frozen=True)
class JensenShannon:
    """The generalised Jensen-Shannon divergence (GKD, arXiv:2306.13649): with m = beta q + (1 - beta) pi,

        beta KL(q || m) + (1 - beta) KL(pi || m);   beta 0 is KL(q || pi), beta 1 is KL(pi || q)

    At the ends the formula itself is 0; its limits per beta and per 1 - beta are the two KLs. Degenerate: equal
    distributions give 0.
    """

    beta: float = 0.5
    not_a_part: ClassVar[str] = "a setting of Distil"

    def __post_init__(self) -> None:
        if not 0.0 <= self.beta <= 1.0:
            raise AssayError(f"beta of JensenShannon is {self.beta}. Use 0 (forward KL) to 1 (reverse KL)")

    def __call__(self, logp: Tensor, logq: Tensor) -> Tensor:
        """Returns the divergence of log-probabilities [..., A], the policy's first."""
        if self.beta in (0.0, 1.0):
            return reverse_kl(logp, logq) if self.beta else forward_kl(logp, logq)
        middle = torch.logaddexp(logq + math.log(self.beta), logp + math.log1p(-self.beta))
        return self.beta * reverse_kl(logq, middle) + (1.0 - self.beta) * reverse_kl(logp, middle)


TEACHER_WEIGHT = "teacher_weight"
"""Column [B, T]: how much the teacher's distribution at a decision counts, where a part wrote it."""


@dataclass(frozen=True)
class Distil(Objective):
    """min(rho, ceiling) * D(pi, q) at every decision that has a teacher, rho = pi / pi_old without gradient.

    With D = KL(pi || q), the gradient is the policy gradient with advantages log q(v) - log pi(v) for all actions v,
    not for the sampled one alone (SDPO, arXiv:2601.20802). The actions are the candidates and all others together, so
    D is at most that of the whole distributions, and equal if every action is a candidate. `divergence` maps (log pi,
    log q) [B, T, K + 1] to [B, T]. A column `teacher_weight` multiplies it. No gradient into the teacher. Degenerate:
    decisions without a teacher are in neither sum nor count. Assumes a teacher of the same vocabulary.
    """

    divergence: Callable[[Tensor, Tensor], Tensor] = reverse_kl
    ceiling: float = 2.0
    aggregate: Aggregation = TokenMean()
    first_order: ClassVar[bool] = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.CANDIDATES})
    reads: ClassVar[tuple[str, ...]] = ("candidates",)
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"divergence": jensen_shannon}, {})
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "the teacher's distribution is the credit"}

    @property
    def together(self) -> str | None:
        """Returns which rows the aggregation needs in one micro-batch."""
        return self.aggregate.together

    def count(self, batch: Experience) -> Tensor:
        """Returns the aggregation's count over decisions that have a teacher."""
        return self.aggregate.count(taught(batch))

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over decisions that have a teacher."""
        logp, known = view.scored.candidates, taught(batch)
        assert logp is not None, "the engine provides what `needs` declares"
        moved = (view.scored.logp - batch.logp).detach() * batch.mask
        distance = self.divergence(with_tail(logp), with_tail(batch.column("candidates")[..., 1].detach()))
        distance = torch.where(known.mask, distance, 0.0)
        weight = moved.clamp(-20.0, 20.0).exp().clamp(max=self.ceiling) * self.aggregate.weigh(known)
        if TEACHER_WEIGHT in batch.extra:
            weight = weight * batch.column(TEACHER_WEIGHT).detach()
        metrics = ratio_metrics(moved, moved.exp() > self.ceiling, batch)
        own = {
            "distance_to_teacher": (distance.detach().sum(), known.num_decisions),
            "taught": (known.num_decisions, batch.num_decisions),
        }
        return Loss((distance * weight).sum(), self.count(batch), metrics | own)


def taught(batch: Experience) -> Experience:
    """Returns the batch with the mask on decisions that have a teacher."""
    return batch.with_columns(mask=batch.mask & (batch.column("candidates")[..., 1] < 0).any(-1))
