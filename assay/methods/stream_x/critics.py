"""Losses for learning from a stream. Axes: B sequences, T decisions, A actions.

These losses are minus an output, not an error: their gradient accumulates in an eligibility trace, and the error
reaches the optimizer as the metric `td_error`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, View
from assay.methods.stream_x.traces import decided_and_seen, td_error, trace_metrics
from assay.models.bodies.perceptron import features
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class FitMoments(OverTransitions, CriticLoss):
    """sum (mean - x)^2 / 2 + (variance - (1 - 1/n) (x - mean)^2)^2 / 2 over the observations after each decision.

    For each of `models`; (x - mean)^2 has no gradient. n counts the samples up to this one. The optimizer `Averaging`
    makes Welford's update of it, with one sample per update: mean and population variance of all samples so far.
    Reports the number of observations as the metric `samples`.
    """

    models: tuple[str, ...] = model_name(("actor", "value"))
    breaks: ClassVar[dict[str, str]] = {"ends": "an observation counts as seen, however its episode ended"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squared errors of the moments."""
        now, seen = batch.now, features(batch.after.context).detach()
        weight, total = now.weight.unsqueeze(-1), torch.zeros((), dtype=now.reward.dtype)
        for name in self.models:
            scale = view.model(name).body.scale
            new = scale.number.detach() + 1.0
            spread = (1.0 - 1.0 / new) * (seen - scale.mean.detach()).square()
            error = (scale.mean - seen).square() + (scale.variance - spread).square()
            # `Averaging` divides the step by n: the gradient -n adds one to the number of samples.
            total = total + 0.5 * (error * weight).sum() - (new * scale.number * now.weight).sum()
        count = self.count(batch)
        return Loss(total, count, {"samples": (count, count)})


@dataclass(frozen=True)
class TraceValue(OverTransitions, CriticLoss):
    """loss = -V(s_t); the metric `td_error` is r + discount * V(s_next) - V(s_t): TD(lambda) by a tracing optimizer."""

    discount: float = 0.99
    value: str = model_name("value")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns minus the value, and its error as a metric."""
        now, critic = decided_and_seen(batch), view.model(self.value)
        value = critic(now.context)
        with torch.no_grad():
            delta = td_error(now, value, critic(batch.after.context), self.discount)
        return Loss(-(value * now.weight).sum(), self.count(batch), trace_metrics(now, delta))


@dataclass(frozen=True)
class TraceQ(OverTransitions, CriticLoss):
    """loss = -Q(s_t, a_t); `td_error` is r + discount * max Q(s_next, .) - Q(s_t, a_t): Watkins' Q(lambda).

    A decision that was not greedy cuts the trace before it, so that the backward view is the cut lambda-return.
    """

    discount: float = 0.99
    actor: str = model_name("actor")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns minus the value of the action taken, its error, and whether it explored."""
        now, actor = decided_and_seen(batch), view.model(self.actor)
        values = actor.values(now.context)
        chosen = values.gather(-1, now.action.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            delta = td_error(now, chosen, actor.values(batch.after.context).amax(-1), self.discount)
            explored = chosen < values.amax(-1)
        return Loss(-(chosen * now.weight).sum(), self.count(batch), trace_metrics(now, delta, explored))
