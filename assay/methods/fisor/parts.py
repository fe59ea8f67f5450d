"""Feasibility: the worst harm to come, learned from recorded decisions alone; weights and choice of decisions by it.

Axes: B sequences, T columns, N critics or rows, C candidates, A actions.
h(s, a) > 0 means a violation; V(s) <= 0 means that it can be avoided:

    Q(s, a) = (1 - discount) h + discount * max(h, V(s')),  h where the episode ends;   V(s) = min over a of Q(s, a)

Fisac et al. 2019 (arXiv:1809.07737 for the discounted form); from data by expectiles: FISOR (arXiv:2401.10700).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.core.settings import model_name
from assay.core.slots import Target, View, Wrapper
from assay.core.spaces import Context
from assay.ops import random
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


class Choosing:
    """Draws C actions for each row and takes the one with the best critic value; of equal ones the first.

    The log-probability of the best of C is unknown: it is set to 0 and must not be trained on. Without uniform
    numbers each row uses a hash of its context, so that the action is a function of the context.
    """

    def __init__(self, actor: Any, critic: Any, part: BestOf) -> None:
        self.actor, self.critic, self.part = actor, critic, part
        self.num_draws = part.num * actor.num_draws

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the chosen action of each row."""
        numbers = hashed_uniform(context, self.num_draws) if uniform is None else uniform
        rows, num = len(numbers), self.part.num
        spread = {name: value.repeat_interleave(num, 0) for name, value in context.items()}
        action, logp = self.actor.act(spread, numbers.reshape(rows * num, -1))
        best = self.part.cost(self.critic(spread, action)).view(rows, num).argmin(1)
        return action.view(rows, num, *action.shape[1:])[torch.arange(rows), best], logp.new_zeros(rows)


def hashed_uniform(context: Context, num: int) -> Tensor:
    """Returns uniform numbers [N, num] that are a hash of each row's context."""
    seen = next(iter(context.values()))
    words = [column.numpy() for column in seen.float().contiguous().cpu().view(torch.int32).flatten(1).unbind(1)]
    values = random.uniform(Draw(0, (9,)), *(word[:, None] for word in words), np.arange(num)[None])
    return random.as_open_float32(values).to(seen)


@dataclass(frozen=True)
class BestOf(Wrapper):
    """The best of `num` actions of `actor` by the pessimistic value of `critic`: max_c min_i Q_i(s, a_c).

    If values are harm, `lowest` selects min_c max_i Q_i(s, a_c). Candidates that are `enough` or better count as
    equal, since differences among them are the critic's noise. Degenerate: one candidate is the actor itself.
    """

    num: int = 16
    actor: str = "actor"
    critic: str = "q_target"
    lowest: bool = False
    enough: float | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Returns the names of the actor and the critic."""
        return self.actor, self.critic

    def cost(self, value_N: Tensor) -> Tensor:
        """Returns the number to minimise over candidates, of values [N critics, rows]."""
        sign = 1.0 if self.lowest else -1.0
        cost = (sign * value_N).amax(0)
        return cost if self.enough is None else cost.clamp(min=sign * self.enough)

    def around(self, models: Mapping[str, Any]) -> Choosing:
        """Returns the choosing actor."""
        return Choosing(models[self.actor], models[self.critic], self)
