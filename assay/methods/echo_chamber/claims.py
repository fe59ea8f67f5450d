"""Formats as arms of a bandit, and answers of each format."""

from __future__ import annotations

import torch
from torch import Tensor

from assay import recipes
from assay.claims import by_hand, probes
from assay.tasks.tabular.bandit import bandit

SHARE, ACCURACY = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.6, 0.5]).double()
BANDIT = bandit((0.5, 0.5))
SCRIPT = {
    "def f(x):\n  return 7": "function", "def g(): 7": "function", "<llm-code>print(7)</llm-code>7": "code",
    "Definitely 7": "text", "it is\n7": "text", "I define it: 8": "text", "7": "text", "...": "other",
}  # fmt: skip
"""Answers and their formats."""


def loss_with_kl(seen: probes.Seen) -> Tensor:
    return by_hand.grpo_loss(seen) + 0.01 * by_hand.mean_of_decisions(by_hand.k3(seen), seen.experience)


def distance_from_push() -> Tensor:
    """Returns how far grpo's expected step on six arms, a right and a wrong one of each format, is from the formula
    when the arms of a format are added up and the first format's push is 1.
    """
    odds = torch.stack((SHARE * ACCURACY, SHARE * (1 - ACCURACY)), 1).flatten()
    reward = torch.tensor([1.0, 0.0] * 3).double()
    push = -probes.expected_gradient(recipes.grpo(), odds.log(), reward, members=3).view(3, 2).sum(1)
    right = SHARE * (ACCURACY - (SHARE * ACCURACY).sum())
    return (push / push[0] - right / right[0]).abs().max() + (push[0] > 0)
