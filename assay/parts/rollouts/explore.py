"""Exploration: wraps the actor while experience is gathered. Axes: N rows, A action dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import State
from assay.core.slots import Explore, Scene, Schedule, number
from assay.core.spaces import MASK, Context
from assay.ops.distributions import normal_sample


class EpsilonActor:
    """Takes a uniform action with probability epsilon, else the greedy one; records the mixture's log-probability.

    Degenerate: epsilon 0 is the greedy actor, with log-probability 0; epsilon 1 is uniform over the actions. Source:
    Watkins 1989. Assumes discrete actions.
    """

    num_draws = 2

    def __init__(self, actor: Any, epsilon: float) -> None:
        self.actor, self.epsilon = actor, epsilon

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probabilities; the first uniform number decides whether to explore, the second the
        action.
        """
        greedy, logp = self.actor.act(context, None)
        if uniform is None:
            return greedy, logp
        num, anything = self.any_action(context, uniform[:, 1])
        action = torch.where(uniform[:, 0] < self.epsilon, anything, greedy)
        prob = self.epsilon / num + (1.0 - self.epsilon) * (action == greedy)
        return action, prob.to(logp.dtype).log()

    def any_action(self, context: Context, uniform: Tensor) -> tuple[int | Tensor, Tensor]:
        """Returns (number of allowed actions, one of them drawn uniformly) for each row."""
        if MASK not in context:
            num = self.actor.num_actions
            return num, (uniform * num).long().clamp(max=num - 1)
        allowed = context[MASK].bool()
        num = allowed.sum(-1)
        rank = (uniform * num).long().clamp(max=num - 1)  # the allowed actions are numbered in their order
        return num, (allowed & (allowed.cumsum(-1) == rank.unsqueeze(-1) + 1)).float().argmax(-1)


@dataclass(frozen=True)
class EpsilonGreedy(Explore):
    """Explores with probability `epsilon` (a number or a schedule). Degenerate: epsilon 0 is the greedy actor.

    Source: Watkins 1989. Assumes discrete actions.
    """

    epsilon: float | Schedule = 0.05

    def wrap(self, actor: Any, scene: Scene, state: State) -> EpsilonActor:
        return EpsilonActor(actor, number(self.epsilon))


class NoisyActor:
    """Adds Gaussian noise of `scale` half-ranges to a deterministic actor and clips to the bounds.

    Degenerate: scale 0 gives the actor's own action. Source: arXiv:1509.02971, with white noise. Assumes bounded
    actions.
    """

    def __init__(self, actor: Any, scale: float) -> None:
        self.actor, self.scale, self.num_draws = actor, scale, actor.num_draws

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the noisy action; log-probability 0, since pathwise losses need no off-policy correction."""
        action, logp = self.actor.act(context, None)
        if uniform is None:
            return action, logp
        noise = normal_sample(uniform)
        return self.actor.clamp(action + self.scale * self.actor.half_range * noise), logp


@dataclass(frozen=True)
class GaussianNoise(Explore):
    """Action noise for deterministic actors, in units of half the action range. Degenerate: scale 0 adds none.

    Source: arXiv:1802.09477. Assumes bounded actions.
    """

    scale: float | Schedule = 0.1
    breaks: ClassVar[dict[str, str]] = {"mixture": "records 0: pathwise losses do not read log-probabilities"}

    def wrap(self, actor: Any, scene: Scene, state: State) -> NoisyActor:
        return NoisyActor(actor, number(self.scale))
