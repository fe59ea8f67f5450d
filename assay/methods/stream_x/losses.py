"""Losses for learning from a stream. Axes: B sequences, T decisions, A actions.

These losses are minus an output, not an error: their gradient accumulates in an eligibility trace, and the error
reaches the optimizer as the metric `td_error`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import AssayError, CriticLoss, Experience, Loss, Need, Objective, View, model_name
from assay.models import features
from assay.parts import OverTransitions


def decided_and_seen(batch: Experience) -> Experience:
    """Returns all columns but the last; raises AssayError for a decision in the last one, which has no next context."""
    if bool(batch.mask[:, -1].any()):
        raise AssayError("a TD error needs the context after each decision. Use source OneByOne() or Replay()")
    return batch.now


def td_error(now: Experience, value_t: Tensor, value_next: Tensor, discount: float) -> Tensor:
    """Returns delta_t = r_t + discount * V(s_next) - V(s_t), zero where masked, without gradient.

    After a terminal decision V(s_next) is 0; a truncated one bootstraps.
    """
    target = now.reward + discount * value_next * (~now.terminal)
    return ((target - value_t) * now.weight).detach()


def trace_metrics(now: Experience, delta: Tensor, cut: Tensor | None = None) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns `td_error`, `episode_over` (empties the trace after this decision) and, if given, `trace_cut` (before
    it).
    """
    count, over = now.num_decisions, (now.terminal | now.truncated) & now.mask
    metrics = {"td_error": (delta.sum(), count), "episode_over": (over.sum(), count)}
    return metrics if cut is None else metrics | {"trace_cut": ((cut & now.mask).sum(), count)}


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


@dataclass(frozen=True)
class TracePolicy(OverTransitions, Objective):
    """loss = -(log pi(a_t|s_t) + entropy * sign(delta_t) * H(pi(.|s_t))), delta the critic's TD error: AC(lambda).

    arXiv:2410.14606. The optimizer traces this gradient and moves along delta * trace, so that the sign makes the
    entropy of the current decision rise for either sign of delta.
    """

    discount: float = 0.99
    entropy: float = 0.01
    value: str = model_name("value")
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.ENTROPY})
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {
        "zero_credit": "credit is the metric `td_error`, which the optimizer multiplies by",
        "entropy": "the optimizer multiplies by the TD error, whose sign is in the term already",
    }

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns minus log-probability and signed entropy, and the TD error as a metric."""
        now, critic, scored = decided_and_seen(batch), view.model(self.value), view.scored
        assert scored.entropy is not None
        with torch.no_grad():
            delta = td_error(now, critic(now.context), critic(batch.after.context), self.discount)
        logp, entropy = scored.logp[:, :-1], scored.entropy[:, :-1]
        gained = (logp + self.entropy * delta.sign() * entropy) * now.weight
        spread = {"entropy": ((entropy.detach() * now.weight).sum(), now.num_decisions)}
        return Loss(-gained.sum(), self.count(batch), spread | trace_metrics(now, delta))
