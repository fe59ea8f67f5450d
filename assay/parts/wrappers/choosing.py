"""The best of an actor's candidates by a critic. Axes: N rows or critics, C candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.settings import model_name
from assay.core.slots import Wrapper
from assay.core.spaces import Context
from assay.ops import random


class Choosing:
    """Draws C actions for each row and takes the one with the best critic value (of equal ones the first), or with a
    temperature one at random.

    The log-probability of the best of C is unknown: it is set to 0 and must not be trained on. Without uniform
    numbers each row uses a hash of its context, so that the action is a function of the context.
    """

    def __init__(self, actor: Any, critic: Any, part: BestOf) -> None:
        self.actor, self.critic, self.part = actor, critic, part
        self.num_draws = part.num * actor.num_draws + (part.temperature > 0.0)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the chosen action of each row."""
        numbers = hashed_uniform(context, self.num_draws) if uniform is None else uniform
        rows, num, each = len(numbers), self.part.num, self.actor.num_draws
        spread = {name: value.repeat_interleave(num, 0) for name, value in context.items()}
        action, logp = self.actor.act(spread, numbers[:, : num * each].reshape(rows * num, each))
        cost = self.part.cost(self.critic(spread, action)).view(rows, num)
        best = cost.argmin(1)
        if self.part.temperature:
            best = drawn((-cost / self.part.temperature).softmax(1), numbers[:, -1])
        return action.view(rows, num, *action.shape[1:])[torch.arange(rows), best], logp.new_zeros(rows)


def drawn(prob_NC: Tensor, uniform_N: Tensor) -> Tensor:
    """Returns the candidate of each row that the uniform number falls on."""
    below = prob_NC.cumsum(1) < uniform_N.unsqueeze(1)
    return below.sum(1).clamp(max=prob_NC.shape[1] - 1)


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
    equal, since differences among them are the critic's noise. With a `temperature` beta, in units of the values, one
    is drawn with probability softmax(min_i Q_i(s, a_c) / beta) instead (arXiv:2410.13816): for many candidates that is
    pi(a|s) exp(Q / beta), for a large beta the actor. Degenerate: one candidate is the actor itself. Source:
    arXiv:2401.10700. Assumes an actor that can be sampled.
    """

    num: int = 16
    actor: str = model_name("actor")
    critic: str = model_name("q_target")
    lowest: bool = False
    enough: float | None = None
    temperature: float = 0.0
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"num": 4, "temperature": 0.3},)

    def __post_init__(self) -> None:
        if self.num < 1 or self.temperature < 0.0:
            raise AssayError(
                f"BestOf has {self.num} candidates and temperature {self.temperature:g}. Use at least 1, and 0 or more"
            )

    @property
    def reads(self) -> tuple[str, ...]:
        return self.actor, self.critic

    def cost(self, value_N: Tensor) -> Tensor:
        """Returns the number to minimise over candidates, of values [N critics, rows]."""
        sign = 1.0 if self.lowest else -1.0
        cost = (sign * value_N).amax(0)
        return cost if self.enough is None else cost.clamp(min=sign * self.enough)

    def around(self, models: Mapping[str, Any]) -> Choosing:
        return Choosing(models[self.actor], models[self.critic], self)
