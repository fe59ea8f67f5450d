"""Best-of-N action selection of the trained policy. Axes: N rows, C candidates, A actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw
from assay.core.slots import Wrapper
from assay.core.spaces import Context
from assay.ops import random


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
