"""How far the best policy moves when the reward does, by solving a table exactly. Axes: S states, A actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

TIE = 1e-9
"""Values nearer than this are tied."""
ROUNDS = 400


@dataclass(frozen=True, eq=False)
class Decisions:
    """A finite problem with certain transitions: reward [S, A], the state after each action [S, A], discount."""

    reward: Tensor
    after: Tensor
    discount: float = 0.0
    not_a_part: ClassVar[str] = "a problem that claims solve"

    def values(self, alpha: float) -> Tensor:
        """Returns Q [S, A] for reward plus alpha * entropy; alpha 0 is the plain optimum."""
        found = torch.zeros_like(self.reward)
        for _ in range(ROUNDS if self.discount else 1):
            best = alpha * (found / alpha).logsumexp(1) if alpha else found.amax(1)
            found = self.reward + self.discount * best[self.after]
        return found

    def policy(self, alpha: float) -> Tensor:
        """Returns the optimal policy [S, A]: softmax(Q / alpha), uniform over tied actions for alpha 0."""
        found = self.values(alpha)
        if alpha:
            return (found / alpha).softmax(1)
        tied = (found >= found.amax(1, keepdim=True) - TIE).double()
        return tied / tied.sum(1, keepdim=True)

    def gap(self) -> float:
        """Returns the smallest distance of the best action from the next one that is not tied with it."""
        found = self.values(0.0)
        behind = found.amax(1, keepdim=True) - found
        return float(behind[behind > TIE].min())


def moved(problem: Decisions, change: Tensor, alpha: float) -> float:
    """Returns the largest total variation of the optimal policy over states when `change` [S, A] is added to the
    reward.
    """
    other = Decisions(problem.reward + change, problem.after, problem.discount)
    return float((problem.policy(alpha) - other.policy(alpha)).abs().sum(1).max() / 2)


def over_bound(problem: Decisions, change: Tensor, alpha: float) -> float:
    """Returns the same over the bound of a soft policy, |change| / (2 alpha (1 - discount))."""
    bound = float(change.abs().max()) / (2.0 * alpha * (1.0 - problem.discount))
    return moved(problem, change, alpha) / bound


def bandit(*rewards: float) -> Decisions:
    """Returns a problem of one decision."""
    reward = torch.tensor([rewards]).double()
    return Decisions(reward, torch.zeros(reward.shape, dtype=torch.long))


def moved_by(rewards: tuple[float, ...], change: tuple[float, ...], alpha: float) -> float:
    """Returns `moved` for one decision."""
    return moved(bandit(*rewards), torch.tensor([change]).double(), alpha)
