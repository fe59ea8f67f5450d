"""Formats as arms of a bandit, and a script of answers that is counted by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from assay import recipes
from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.tasks.tabular.bandit import bandit

SHARE, ACCURACY = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.6, 0.5]).double()
BANDIT = bandit((0.5, 0.5))
SCRIPT = (
    "def f(x):\n  return 7", "def g(): 7", "<llm-code>print(7)</llm-code>7", "Definitely 7", "it is\n7", "it is 8",
    "I define it: 8", "7", "...", "8", "7",
)  # fmt: skip
"""Two functions, one piece of code, five texts, garbage, a text that is cut at its limit, a row that left training."""
SHARES = {"mode/function": 0.2, "mode/code": 0.1, "mode/text": 0.6, "mode/other": 0.1, "largest_mode": 0.6}


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


def counted(ours: Recipe) -> float:
    """Returns how far the logged shares of the script are from those by hand."""
    return probes.log_gap(ours.credit[0], SHARES, *probes.answered(SCRIPT, cut=[9], faults=[10]))
