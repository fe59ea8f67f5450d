"""Temporal-difference losses of action-value critics. Axes: B sequences, T columns, N critics, A actions.

A transition is a sequence of two columns; longer sequences give one transition for each decision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience, Loss
from assay.core.slots import CriticLoss, View
from assay.ops.distributions import normal_sample
from assay.parts.aggregations import OverTransitions


def one_step_target(now: Experience, value_next: Tensor, discount: float) -> Tensor:
    """r + discount * V(s'), where V(s') counts unless the step is terminal; truncated steps bootstrap. No gradient."""
    return (now.reward + discount * value_next * (~now.terminal)).detach()


@dataclass(frozen=True)
class DoubleQLearning(OverTransitions, CriticLoss):
    """(Q(s, a) - y)^2 / 2, y = r + discount * Q_target(s', argmax Q(s', .)): double DQN (arXiv:1509.06461).

    Squared, not Huber: where values are large a Huber loss is a median, few terminal steps are outvoted, and values
    grow without bound.
    """

    discount: float = 0.99

    def target(self, batch: Experience, view: View) -> Tensor:
        """y for the columns of `batch.now`, [B, T]."""
        after = batch.after
        with torch.no_grad():
            best = view.model("actor").values(after.context).argmax(-1, keepdim=True)
            value_next = view.model("target").values(after.context).gather(-1, best).squeeze(-1)
        return one_step_target(batch.now, value_next, self.discount)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors of the actor's own action values."""
        now = batch.now
        values = view.model("actor").values(now.context)
        chosen = values.gather(-1, now.action.unsqueeze(-1)).squeeze(-1)
        loss = 0.5 * (chosen - self.target(batch, view)).square() * now.weight
        metrics = {"q": ((chosen.detach() * now.weight).sum(), now.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class SmoothedTwinLoss(OverTransitions, CriticLoss):
    """sum_i (Q_i(s, a) - y)^2 / 2, y = r + discount * min_i Q'_i(s', mu'(s') + clipped noise): TD3
    (arXiv:1802.09477).
    """

    discount: float = 0.99
    noise: float = 0.2
    noise_limit: float = 0.5

    def target(self, batch: Experience, view: View) -> Tensor:
        """y for the columns of `batch.now`, [B, T]."""
        after = batch.after
        with torch.no_grad():
            actor = view.model("actor_target")
            action = actor.decide(after.context)
            noise = self.noise * normal_sample(view.uniform(action.shape, tag=2))
            action = actor.clamp(action + noise.clamp(-self.noise_limit, self.noise_limit) * actor.half_range)
            value_next = view.model("q_target")(after.context, action).amin(0)
        return one_step_target(batch.now, value_next, self.discount)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors of all critics."""
        return squared_errors(batch.now, view, self.target(batch, view), self.count(batch))


@dataclass(frozen=True)
class SoftTwinLoss(OverTransitions, CriticLoss):
    """sum_i (Q_i(s, a) - y)^2 / 2, y = r + discount * (min_i Q'_i(s', a') - temperature * log pi(a'|s')): SAC
    (arXiv:1812.05905).
    """

    discount: float = 0.99

    def target(self, batch: Experience, view: View) -> Tensor:
        """y for the columns of `batch.now`, [B, T]."""
        now, after = batch.now, batch.after
        with torch.no_grad():
            actor = view.model("actor")
            action, logp = actor.sample(after.context, view.uniform((*now.mask.shape, actor.num_draws), tag=2))
            value_next = view.model("q_target")(after.context, action).amin(0) - view.model("temperature")() * logp
        return one_step_target(now, value_next, self.discount)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors of all critics."""
        return squared_errors(batch.now, view, self.target(batch, view), self.count(batch))


def squared_errors(now: Experience, view: View, target: Tensor, count: Tensor) -> Loss:
    """Half squared errors of the critic `q`, summed over its members and the decisions."""
    error = (view.model("q")(now.context, now.action) - target) * now.weight
    metrics = {"td_error": (error.detach().abs().mean(0).sum(), now.num_decisions)}
    return Loss(0.5 * error.square().sum(), count, metrics)
