"""Distillation of a teacher's distributions in the policy's own contexts. Axes: B, T, K candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, Objective, View
from assay.parts.aggregations import TokenMean
from assay.parts.objectives.policy import ratio_metrics


# ---------------------------------------------------------------------------------------------------- divergences
def reverse_kl(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns KL(pi || q) of whole distributions, the policy's first."""
    return (logp.exp() * (logp - logq)).sum(-1)


def forward_kl(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns KL(q || pi)."""
    return (logq.exp() * (logq - logp)).sum(-1)


def jensen_shannon(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns half of KL(pi || m) + KL(q || m), m the mean of both; at most log 2."""
    middle = torch.logaddexp(logp, logq) - torch.tensor(2.0, dtype=logp.dtype).log()
    return 0.5 * (reverse_kl(logp, middle) + reverse_kl(logq, middle))


def with_tail(logp: Tensor) -> Tensor:
    """Returns log-probabilities of K actions and that of all others together, [..., K + 1]; at least log 1e-7."""
    inside = logp.logsumexp(-1, keepdim=True).clamp(max=-1e-7)
    return torch.cat((logp, torch.log(-torch.expm1(inside))), -1)


@dataclass(frozen=True)
class Distil(Objective):
    """min(rho, ceiling) * D(pi, q) at every decision that has a teacher, rho = pi / pi_old without gradient.

    With D = KL(pi || q), the gradient is the policy gradient with advantages log q(v) - log pi(v) for all actions v,
    not for the sampled one alone (SDPO, arXiv:2601.20802). The actions are the candidates and all others together, so
    D is at most that of the whole distributions, and equal if every action is a candidate. `divergence` maps (log pi,
    log q) [B, T, K + 1] to [B, T]. No gradient into the teacher. Degenerate: decisions without a teacher are in
    neither sum nor count.
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
        metrics = ratio_metrics(moved, moved.exp() > self.ceiling, batch)
        own = {
            "distance_to_teacher": (distance.detach().sum(), known.num_decisions),
            "taught": (known.num_decisions, batch.num_decisions),
        }
        return Loss((distance * weight).sum(), self.aggregate.count(known), metrics | own)


def taught(batch: Experience) -> Experience:
    """Returns the batch with the mask on decisions that have a teacher."""
    return batch.with_columns(mask=batch.mask & (batch.column("candidates")[..., 1] < 0).any(-1))
