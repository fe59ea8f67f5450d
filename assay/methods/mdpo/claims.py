"""The exact solution of an iteration of mdpo."""

from __future__ import annotations

import torch

from assay.claims import probes
from assay.core.recipe import Recipe


def slope_at_solution(recipe: Recipe) -> torch.Tensor:
    """Returns the largest slope of the expected loss at pi_old exp(step A) / Z, step 1/2: every arm once, weighted by
    its probability under the acting policy.
    """
    old, advantage = torch.tensor([0.7, -0.4, 0.1, -1.0]).double(), torch.tensor([1.5, -0.5, 0.2, -2.0]).double()
    arms = probes.bandit_experience(range(4), [0.0] * 4, old).add({"advantage": advantage.unsqueeze(1)})
    new = old + 0.5 * advantage
    push = probes.decision_weights(recipe, arms, new.log_softmax(-1).unsqueeze(1))[:, 0]
    pull = old.softmax(-1) * push
    return (new.softmax(-1) * pull.sum() - pull).abs().max()
