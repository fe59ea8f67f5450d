"""Feasibility: the worst harm to come, learned from recorded decisions alone, and weights of decisions by it.

Axes: B sequences, T columns, N critics. h(s, a) > 0 means a violation; V(s) <= 0 means that it can be avoided:

    Q(s, a) = (1 - discount) h + discount * max(h, V(s')),  h where the episode ends;   V(s) = min over a of Q(s, a)

Fisac et al. 2019 (arXiv:1809.07737 for the discounted form); from data by expectiles: FISOR (arXiv:2401.10700).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.settings import model_name
from assay.core.slots import Target, View
from assay.parts.objectives.denoising import Weight
from assay.parts.objectives.weighted import exponential_weight


@dataclass(frozen=True)
class WorstToCome(Target):
    """y = (1 - discount) h + discount * max(h, V(s')): h if terminal, not a sum of costs.

    h is `harm` if the decision cost something, else -1. A violation that cannot be avoided k decisions ahead has y =
    discount^k (harm + 1) - 1: it is visible up to ln(harm + 1) / -ln(discount) decisions ahead, which is the purpose
    of a large `harm`. V is the critic `value`. Degenerate: where nothing costs it is -1 everywhere.
    """

    discount: float = 0.99
    harm: float = 25.0
    value: str = model_name("harm")

    def harm_of(self, now: Experience) -> Tensor:
        """Returns h [B, T]."""
        safe = torch.full_like(now.reward, -1.0)
        return safe if now.cost is None else torch.where((now.cost > 0).any(-1), self.harm, safe)

    def backed_up(self, now: Experience, value_next: Tensor) -> Tensor:
        """Returns y for decisions with these next values, [B, T]; no gradient."""
        harm = self.harm_of(now)
        later = (1.0 - self.discount) * harm + self.discount * torch.maximum(harm, value_next)
        return torch.where(now.terminal, harm, later).detach()

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T]."""
        return self.backed_up(batch.now, view.model(self.value)(batch.after.context))


@dataclass(frozen=True)
class Feasible(Weight):
    """Weights by reward among safe decisions, and by least harm where no decision is safe.

        V_h(s) <= 0:  [Q_h(s, a) <= 0] * min(exp(beta * (Q(s, a) - V(s))), limit),  beta = inverse_temperature
        else:         min(exp(caution * (V_h(s) - Q_h(s, a))), harm_limit)

    FISOR (arXiv:2401.10700). Q = min_i, Q_h = max_i; `gain` and `harm` name the critics (Q, V) and (Q_h, V_h).
    Degenerate: a safe state without a safe recorded decision has weight 0.
    """

    inverse_temperature: float = 3.0
    caution: float = 5.0
    limit: float = 100.0
    harm_limit: float = 150.0
    gain: tuple[str, str] = model_name(("q_target", "value"))
    harm: tuple[str, str] = model_name(("harm_q_target", "harm"))

    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns the weights."""
        context, action = batch.context, batch.action
        (q, value), (harm_q, harm) = ([view.model(name) for name in pair] for pair in (self.gain, self.harm))
        worst, least_worst = harm_q(context, action).amax(0), harm(context)
        gain = q(context, action).amin(0) - value(context)
        safe = exponential_weight(gain, self.inverse_temperature, self.limit) * (worst <= 0)
        least = exponential_weight(least_worst - worst, self.caution, self.harm_limit)
        return torch.where(least_worst <= 0, safe, least)
