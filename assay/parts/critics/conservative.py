"""CQL's penalty: lowers the values of the policy's actions relative to the recorded ones. Axes: B, T, N critics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, View
from assay.core.spaces import Context
from assay.ops.distributions import LOG_TWO
from assay.parts.aggregations import OverTransitions
from assay.parts.sources.with_returns import RETURN


def repeated(context: Context, num: int) -> dict[str, Tensor]:
    """Repeats every context `num` times along a new axis, [B, T, num, ...]."""
    return {name: value.unsqueeze(2).expand(*value.shape[:2], num, *value.shape[2:]) for name, value in context.items()}


@dataclass(frozen=True)
class Conservative(OverTransitions, CriticLoss):
    """weight * sum_i (log of the integral of exp Q_i(s, .) - Q_i(s, a)): CQL(H) (arXiv:2006.04779).

    The integral is estimated as the mean of exp(Q) / density over 3 * `num` proposals: uniform actions, and the
    policy's actions in s and in s', as in the authors' code. Its gradient raises Q at the recorded action as much as it
    lowers Q at the proposals. Degenerate: critics that ignore the action get no gradient. Assumes a policy that can be
    sampled and whose density is known.
    """

    weight: float = 5.0
    num: int = 10
    actor: str = model_name("actor")
    q: str = model_name("q")
    breaks: ClassVar[dict[str, str]] = {"ends": "proposals are the policy's in the next state too, however it ended"}

    @torch.no_grad()
    def proposals(self, batch: Experience, view: View) -> tuple[Tensor, Tensor]:
        """Returns (actions [B, T, 3 num, A], their log-densities per half-range [B, T, 3 num])."""
        actor: Any = view.model(self.actor)
        shape = (*batch.now.mask.shape, self.num, actor.num_draws)
        here = actor.sample(repeated(batch.now.context, self.num), view.uniform(shape, tag=4))
        later = actor.sample(repeated(batch.after.context, self.num), view.uniform(shape, tag=5))
        anything = actor.centre + actor.half_range * (2.0 * view.uniform(shape, tag=6) - 1.0)
        density = here[1].new_full(shape[:-1], -LOG_TWO * actor.num_draws)
        return torch.cat((here[0], later[0], anything), 2), torch.cat((here[1], later[1], density), 2)

    def __call__(self, batch: Experience, view: View) -> Loss:
        return self.bounded(batch, view, None)

    def bounded(self, batch: Experience, view: View, least: Tensor | None) -> Loss:
        """Returns the same with the policy's proposals, the first two thirds, worth at least `least` [B, T]."""
        now, q = batch.now, view.model(self.q)
        action, log_density = self.proposals(batch, view)
        values = q(repeated(now.context, 3 * self.num), action)
        if least is not None:
            own = torch.maximum(values[..., : -self.num], least.unsqueeze(-1))
            values = torch.cat((own, values[..., -self.num :]), -1)
        values = values - log_density
        top = values.logsumexp(-1) - math.log(3 * self.num)
        gap = (top - q(now.context, now.action)) * now.weight
        metrics = {"conservative_gap": (gap.detach().mean(0).sum(), now.num_decisions)}
        return Loss(self.weight * gap.sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class Calibrated(OverTransitions, CriticLoss):
    """`Conservative` with max(Q_i(s, a'), G) for Q_i of the policy's proposals a': Cal-QL (arXiv:2303.05479).

    G is the return of the recorded episode from s on, which estimates the behaviour policy's value: values are not
    pushed below it, so that the online phase need not unlearn them. Uniform proposals count as they are. Where G is
    larger, the proposal gets no gradient. Degenerate: G = -infinity is CQL. Assumes whole recorded episodes.
    """

    penalty: Conservative = Conservative(num=2)
    reads: ClassVar[tuple[str, ...]] = (RETURN,)
    breaks: ClassVar[dict[str, str]] = Conservative.breaks

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the summed difference between the soft maximum and the value of the recorded action."""
        return self.penalty.bounded(batch, view, batch.now.column(RETURN))


@dataclass(frozen=True)
class ConservativeChoices(OverTransitions, CriticLoss):
    """weight * (log sum_b exp Q(s, b) - Q(s, a)): CQL(H) for discrete actions, with an exact sum over all b. Never
    below 0.

    Degenerate: with a single action it is 0; equal values give weight * log of their number. Source: arXiv:2006.04779.
    Assumes few enough actions to sum over.
    """

    weight: float = 1.0
    actor: str = model_name("actor")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the summed difference, which is the negative log-likelihood of softmax(Q)."""
        now, values = batch.now, view.model(self.actor).values(batch.now.context)
        gap = (values.logsumexp(-1) - values.gather(-1, now.action.unsqueeze(-1)).squeeze(-1)) * now.weight
        metrics = {"conservative_gap": (gap.detach().sum(), now.num_decisions)}
        return Loss(self.weight * gap.sum(), self.count(batch), metrics)
