"""Formulas by hand, and all pulls of a bandit of three arms."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Experience

PEAKED, FLAT, FLAT_WRONG = torch.tensor([
    [(0.9, 0.05, 0.05), (1.0, 0.2, 0.0)], [(0.4, 0.3, 0.3), (1.0, 0.2, 0.0)], [(0.4, 0.3, 0.3), (0.0, 0.2, 1.0)],
]).double()  # fmt: skip
"""Probabilities and rewards of three arms: the likeliest one, the greedy answer, is the best; in the last the worst."""


def loss_by_hand(seen: probes.Seen, *, to_go: bool = False) -> Tensor:
    data, outcome = seen.experience, by_hand.outcome(seen.experience)
    gain = torch.zeros_like(data.logp)
    for row, greedy in enumerate(data.column("greedy_outcome")):
        places = data.mask[row].nonzero().flatten().tolist()
        penalty = 0.05 * (data.logp[row] - seen.logp("reference")[row]).detach()
        for place, column in enumerate(places):
            later = places[place:]
            ahead = (outcome[row] - greedy).clamp(-5.0, 5.0)
            own = 0.99 ** len(later) * ahead - penalty[column]
            gain[row, column] = (data.reward[row] - penalty)[later].sum() - greedy if to_go else own
    return -by_hand.mean_of_decisions(gain * seen.logp(), data)


def greedy_sequences() -> Experience:
    """Returns sequences of which one is ahead of its greedy answer by 9."""
    greedy = torch.sin(torch.arange(20.0).double()) - 9.0 * (torch.arange(20) == 2)
    return probes.sequences(num=20).add({"greedy_outcome": greedy})


def pulls(ours: Recipe, arms: Tensor, shift: float = 0.0) -> Tensor:
    """Returns the step of the logits after each pull, [A pulled, A]."""
    logits, reward = arms[0].log(), arms[1] + shift
    given = {"greedy_outcome": reward[:1]}
    data = [probes.bandit_experience([arm], reward[arm : arm + 1], logits).add(given) for arm in range(len(reward))]
    return -torch.stack([probes.bandit_gradient_of(ours, one, logits) for one in data])


def mean(ours: Recipe, arms: Tensor) -> Tensor:
    """Returns the expected step."""
    return arms[0] @ pulls(ours, arms)


def variance(ours: Recipe, arms: Tensor, shift: float = 0.0) -> float:
    """Returns the trace of the variance of one pull."""
    steps = pulls(ours, arms, shift)
    return float(arms[0] @ steps.square().sum(1) - (arms[0] @ steps).square().sum())
