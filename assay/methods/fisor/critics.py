"""Which states can still be kept safe: values of the worst harm to come, learned from what was recorded alone.

Axes: B sequences, T columns, N critics. h(s, a) > 0 says that a decision violates; V(s) <= 0 that some way on does not:

    Q(s, a) = (1 - discount) h + discount * max(h, V(s')),  h where the episode ends;   V(s) = min over a of Q(s, a)

Fisac et al. 2019 (arXiv:1809.07737 for the discounted form); from a record by expectiles: FISOR (arXiv:2401.10700).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience, Loss
from assay.core.slots import CriticLoss, View
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class LowExpectile(OverTransitions, CriticLoss):
    """|level - 1(u < 0)| * u^2,  u = V_h(s) - max_i Q'_i(s, a): `Expectile` of harm, turned round, still pessimistic.

    V_h becomes a low expectile of recorded actions' harm: level 1/2 is their mean, level -> 1 the least harm that was
    done. Critic `harm`, which alone gets gradient, and copy `harm_q_target`.
    """

    level: float = 0.98

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Asymmetric squared errors."""
        now, value = batch.now, view.model("harm")(batch.now.context)
        with torch.no_grad():
            worst = view.model("harm_q_target")(now.context, now.action).amax(0)
        gap = (value - worst) * now.weight
        loss = torch.where(gap < 0, 1.0 - self.level, self.level) * gap.square()
        return Loss(loss.sum(), self.count(batch), {"harm": ((value.detach() * now.weight).sum(), self.count(batch))})


@dataclass(frozen=True)
class WorstToCome(OverTransitions, CriticLoss):
    """sum_i (Q_i(s, a) - y)^2 / 2,  y = (1 - discount) h + discount * max(h, V(s')): h once terminal, no sum of costs.

    h is `harm` where the decision cost something, else -1; where nothing costs it is -1 everywhere. A violation that
    cannot be avoided k decisions ahead has y = discount^k (harm + 1) - 1: it is seen up to ln(harm + 1) / -ln(discount)
    decisions ahead, which is what a large `harm` is for. Critics `harm_q`, `harm`.
    """

    discount: float = 0.99
    harm: float = 25.0

    def harm_of(self, batch: Experience) -> Tensor:
        """h [B, T]."""
        safe = torch.full_like(batch.reward, -1.0)
        return safe if batch.cost is None else torch.where((batch.cost > 0).any(-1), self.harm, safe)

    def target(self, batch: Experience, value_next: Tensor) -> Tensor:
        """y for decisions with these values of what follows, [B, T]; no gradient."""
        harm = self.harm_of(batch)
        later = (1.0 - self.discount) * harm + self.discount * torch.maximum(harm, value_next)
        return torch.where(batch.terminal, harm, later).detach()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors of all critics."""
        now = batch.now
        with torch.no_grad():
            target = self.target(now, view.model("harm")(batch.after.context))
        error = (view.model("harm_q")(now.context, now.action) - target) * now.weight
        metrics = {"harm_error": (error.detach().abs().mean(0).sum(), self.count(batch))}
        return Loss(0.5 * error.square().sum(), self.count(batch), metrics)
