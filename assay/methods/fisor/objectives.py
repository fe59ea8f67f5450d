"""Weights of recorded decisions by feasibility. Axes: B, T, N critics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.settings import model_name
from assay.core.slots import View
from assay.parts.objectives.denoising import Weight
from assay.parts.objectives.weighted import exponential_weight


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
