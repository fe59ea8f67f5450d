"""Critic losses for data that somebody else made: expectiles, conservatism, own next actions. Axes: B, T, N critics.

`Expectile` evaluates recorded actions alone; `Conservative` pushes down what the policy would do beside the record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss
from assay.core.slots import CriticLoss, View
from assay.core.spaces import Context
from assay.ops.distributions import LOG_TWO
from assay.parts.aggregations import OverTransitions
from assay.parts.critics.q import one_step_target, squared_errors


@dataclass(frozen=True)
class Expectile(OverTransitions, CriticLoss):
    """|level - 1(u < 0)| * u^2,  u = min_i Q'_i(s, a) - V(s); gradient into V alone: IQL (arXiv:2110.06169).

    V becomes the expectile of recorded actions' values: level 1/2 is their mean, level -> 1 their maximum.
    """

    level: float = 0.7

    def __call__(self, batch: Experience, view: View) -> Loss:
        """The expectile loss."""
        now, value = batch.now, view.model("value")(batch.now.context)
        with torch.no_grad():
            best = view.model("q_target")(now.context, now.action).amin(0)
        gap = (best - value) * now.weight
        loss = torch.where(gap < 0, 1.0 - self.level, self.level) * gap.square()
        return Loss(loss.sum(), self.count(batch), {"v": ((value.detach() * now.weight).sum(), now.num_decisions)})


@dataclass(frozen=True)
class ToOwnAction(OverTransitions, CriticLoss):
    """sum_i (Q_i(s, a) - y)^2 / 2,  y = r + discount * min over k of Q'_k(s', a'),  a' ~ pi(.|s'), no entropy.

    k runs over `subset` critics drawn with replacement for each decision (WSRL, arXiv:2412.07762; in REDQ,
    arXiv:2101.05982, they are distinct and the update's), over all of them where `subset` is 0 (CQL, SAC-N).
    """

    discount: float = 0.99
    subset: int = 0

    def target(self, batch: Experience, view: View) -> Tensor:
        """y for the columns of `batch.now`, [B, T]."""
        now, after, actor = batch.now, batch.after, view.model("actor")
        with torch.no_grad():
            action, _ = actor.sample(after.context, view.uniform((*now.mask.shape, actor.num_draws), tag=2))
            values = view.model("q_target")(after.context, action)
            if self.subset:
                values = chosen(values, view.uniform((*now.mask.shape, self.subset), tag=3))
        return one_step_target(now, values.amin(0), self.discount)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors of all critics."""
        return squared_errors(batch.now, view, self.target(batch, view), self.count(batch))


def chosen(values_NBT: Tensor, uniform_BTM: Tensor) -> Tensor:
    """The values of M critics drawn with replacement for each decision, [M, B, T]."""
    num = len(values_NBT)
    index = (uniform_BTM * num).long().clamp(max=num - 1)
    return values_NBT.movedim(0, -1).gather(-1, index).movedim(-1, 0)


def repeated(context: Context, num: int) -> dict[str, Tensor]:
    """Every context `num` times on an axis of its own, [B, T, num, ...]."""
    return {name: value.unsqueeze(2).expand(*value.shape[:2], num, *value.shape[2:]) for name, value in context.items()}


@dataclass(frozen=True)
class Conservative(OverTransitions, CriticLoss):
    """weight * sum_i (log of the integral of exp Q_i(s, .) - Q_i(s, a)): CQL(H) (arXiv:2006.04779).

    The integral is a mean of exp(Q) / density over 3 * `num` proposals: uniform ones, and the policy's own in s and in
    s', as in the authors' code. Its gradient raises Q at the record as much as it lowers Q at the proposals.
    """

    weight: float = 5.0
    num: int = 10
    breaks: ClassVar[dict[str, str]] = {"ends": "proposals are the policy's in the next state too, however it ended"}

    @torch.no_grad()
    def proposals(self, batch: Experience, view: View) -> tuple[Tensor, Tensor]:
        """(actions [B, T, 3 num, A], their log-densities [B, T, 3 num])."""
        actor: Any = view.model("actor")
        shape = (*batch.now.mask.shape, self.num, actor.num_draws)
        here = actor.sample(repeated(batch.now.context, self.num), view.uniform(shape, tag=4))
        later = actor.sample(repeated(batch.after.context, self.num), view.uniform(shape, tag=5))
        anything = actor.centre + actor.half_range * (2.0 * view.uniform(shape, tag=6) - 1.0)
        density = -(actor.log_half_range + LOG_TWO).sum().expand(shape[:-1])
        return torch.cat((here[0], later[0], anything), 2), torch.cat((here[1], later[1], density), 2)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """The soft maximum's height above what was recorded."""
        now, q = batch.now, view.model("q")
        action, log_density = self.proposals(batch, view)
        values = q(repeated(now.context, 3 * self.num), action) - log_density
        top = values.logsumexp(-1) - math.log(3 * self.num)
        gap = (top - q(now.context, now.action)) * now.weight
        metrics = {"conservative_gap": (gap.detach().mean(0).sum(), now.num_decisions)}
        return Loss(self.weight * gap.sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class ConservativeChoices(OverTransitions, CriticLoss):
    """weight * (log sum_b exp Q(s, b) - Q(s, a)): CQL(H) for choices, the integral a sum over all b. Never below 0."""

    weight: float = 1.0

    def __call__(self, batch: Experience, view: View) -> Loss:
        """The soft maximum's height above what was recorded: minus the log-likelihood of softmax(Q)."""
        now, values = batch.now, view.model("actor").values(batch.now.context)
        gap = (values.logsumexp(-1) - values.gather(-1, now.action.unsqueeze(-1)).squeeze(-1)) * now.weight
        metrics = {"conservative_gap": (gap.detach().sum(), now.num_decisions)}
        return Loss(self.weight * gap.sum(), self.count(batch), metrics)
