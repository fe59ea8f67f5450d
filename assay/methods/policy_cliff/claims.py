"""Problems on which the move of a policy is known, and policies trained on two rewards."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.methods.policy_cliff.stability import Decisions, bandit, over_bound


def loss_by_hand(seen: probes.Seen) -> Tensor:
    return by_hand.rloo_loss(by_hand.with_kl(seen, 0.1))


def ratio(size: float, alpha: float, discount: float = 0.0) -> float:
    """Returns the move divided by its bound, for two actions that lead to states of their own, each with one action
    worth having; the reward of one side rises, that of the other falls.
    """
    reward = torch.tensor([[1.0, 1.0], [1.0, -1e3], [1.0, -1e3]]).double()
    after = torch.tensor([[1, 2], [1, 1], [2, 2]])
    change = size * torch.tensor([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    return over_bound(Decisions(reward, after, discount), change, alpha)


def largest_ratio() -> float:
    """Returns the largest move over its bound in 8 random tables of four states and three actions."""
    draw, found = torch.Generator().manual_seed(0), []
    for _ in range(8):
        reward, change = (torch.randn(4, 3, generator=draw).double() for _ in range(2))
        after = torch.randint(0, 4, (4, 3), generator=draw)
        found.append(over_bound(Decisions(reward, after, 0.5), 0.1 * change, 0.2))
    return max(found)


def second_reward() -> bool:
    """Returns whether R = (1, 1, 0) + eps (0, 1, 5) has action 1 below eps = 1/4 and action 2 above."""
    best = [bandit(1.0, 1.0 + eps, 5.0 * eps).policy(0.0).argmax().item() for eps in (1e-6, 0.1, 0.249, 0.251, 1.0)]
    return best == [1, 1, 1, 2, 2]


def apart(learner: Recipe, seed: int) -> float:
    """Returns the total variation of two policies trained on (1, 1, 0) with 0.02 added to one and taken from the other
    of the tied arms, and the reverse; the random numbers are the same.
    """
    start, policies = torch.zeros(1, 3).double(), []
    for eps in (0.02, -0.02):
        episodes = probes.bandit_episodes(torch.tensor([1.0 + eps, 1.0 - eps, 0.0]))
        table = probes.trained_table(learner, episodes, start, steps=200, members=8, seed=seed)
        policies.append(table.softmax(1))
    return float((policies[0] - policies[1]).abs().sum() / 2)
