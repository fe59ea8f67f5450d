"""Formulas by hand, and all pulls of a bandit of three arms."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.claims.probes.estimators import bandit_gradient_of
from assay.core.recipe import Recipe
from assay.core.record import Experience

PEAKED, FLAT = (0.9, 0.05, 0.05), (0.4, 0.3, 0.3)
RIGHT, WRONG = (1.0, 0.2, 0.0), (0.0, 0.2, 1.0)
"""Rewards with which the likeliest arm is the best, and the worst."""


def loss_by_hand(seen: probes.Seen, *, to_go: bool) -> Tensor:
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


def gap(ours: Recipe, *, to_go: bool) -> float:
    """Returns the gap on sequences of which one is ahead of its greedy answer by 9."""
    data = probes.sequences(num=20)
    greedy = torch.sin(torch.arange(20.0).double()) - 9.0 * (torch.arange(20) == 2)
    given = data.add({"greedy_outcome": greedy})
    return probes.formula_gap(ours, given, lambda seen: loss_by_hand(seen, to_go=to_go))


def pulls(ours: Recipe, chances: tuple[float, ...], rewards: tuple[float, ...], shift: float = 0.0) -> Tensor:
    """Returns the step of the logits after each pull, [A pulled, A]; the greedy answer is the first arm."""
    logits, reward = torch.tensor(chances).double().log(), torch.tensor(rewards).double() + shift
    given = {"greedy_outcome": reward[:1]}
    data = [probes.bandit_experience([arm], reward[arm : arm + 1], logits).add(given) for arm in range(len(chances))]
    return -torch.stack([bandit_gradient_of(ours, one, logits) for one in data])


def mean(ours: Recipe, chances: tuple[float, ...], rewards: tuple[float, ...]) -> Tensor:
    """Returns the expected step."""
    return torch.tensor(chances).double() @ pulls(ours, chances, rewards)


def variance(ours: Recipe, chances: tuple[float, ...], rewards: tuple[float, ...], shift: float = 0.0) -> float:
    """Returns the trace of the variance of one pull."""
    chance, steps = torch.tensor(chances).double(), pulls(ours, chances, rewards, shift)
    return float(chance @ steps.square().sum(1) - (chance @ steps).square().sum())


def answer(ours: Recipe, outcome: float, greedy: float) -> Tensor:
    """Returns the advantages of three decisions with log-ratios 0.1, -0.2 and 0.3 to the reference."""
    data = probes.bandit_experience([0], [0.0], torch.zeros(2))
    three = torch.ones(1, 3, dtype=torch.bool)
    last = torch.tensor([[False, False, True]])
    moved = torch.tensor([[0.1, -0.2, 0.3]]).double()
    columns = {"greedy_outcome": torch.tensor([greedy]).double(), "logp_ref": -moved}
    whole = replace(data, mask=three, logp=torch.zeros(1, 3).double(), reward=outcome * last, terminal=last)
    found: Experience = ours.credit[0](replace(whole, truncated=~three).add(columns))
    return found.column("advantage")[0]
