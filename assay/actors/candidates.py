"""Choosing among several decisions of an actor when training is over. Axes: N rows, C candidates, A actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.ops import random
from assay.types import Context, Draw


class Choosing:
    """Draws C decisions for each row and takes the one that a critic likes best.

    The log-probability of the best of C is not known: it is 0, and nothing may be learned from it. Without uniform
    numbers all rows share C fixed sets of them, so that the decision is a function of the context.
    """

    def __init__(self, actor: Any, critic: Any, num: int, lowest: bool) -> None:
        self.actor, self.critic, self.num, self.lowest = actor, critic, num, lowest
        self.num_draws = num * actor.num_draws
        self.fixed = random.uniform_tensor(Draw(0, (9,)), (1, self.num_draws))

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """The chosen decision of each row."""
        rows = len(next(iter(context.values())))
        numbers = self.fixed.expand(rows, self.num_draws) if uniform is None else uniform
        spread = {name: value.repeat_interleave(self.num, 0) for name, value in context.items()}
        action, logp = self.actor.act(spread, numbers.reshape(rows * self.num, -1).to(next(iter(context.values()))))
        value = self.critic(spread, action)
        best = value.amax(0).view(rows, -1).argmin(1) if self.lowest else value.amin(0).view(rows, -1).argmax(1)
        return action.view(rows, self.num, *action.shape[1:])[torch.arange(rows), best], logp.new_zeros(rows)


@dataclass(frozen=True)
class BestOf:
    """The best of `num` decisions of `actor` by the pessimistic value of `critic`: max_c min_i Q_i(s, a_c).

    Where values are harm, `lowest` turns it round: min_c max_i Q_i(s, a_c). One candidate is the actor itself.
    """

    num: int = 16
    actor: str = "actor"
    critic: str = "q_target"
    lowest: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The actor and the critic."""
        return self.actor, self.critic

    def around(self, models: Mapping[str, Any]) -> Choosing:
        """The choosing actor."""
        return Choosing(models[self.actor], models[self.critic], self.num, self.lowest)
