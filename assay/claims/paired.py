"""Pairs by hand, for claims of methods that compare the best with the worst answer of each group.

Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.record import Experience


def compared() -> Experience:
    """Returns groups with positive outcomes; the first and the last have a row that left training, in the last one all
    outcomes are equal. Rewards outside of decisions are large.
    """
    data = probes.sequences()
    assert data.group is not None
    mask = data.mask & (torch.arange(len(data)) != 1).unsqueeze(1)
    reward = torch.where(mask, data.reward.abs(), 100.0 * data.reward)
    ends = (data.terminal | data.truncated).to(reward)
    return replace(data, mask=mask, reward=torch.where(data.group.unsqueeze(1) == 3, ends, reward))


def pair_loss(seen: probes.Seen, values: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Returns the mean over groups of the loss of the values [B] of their best and their worst answer; groups whose
    outcomes are equal have none.
    """
    data, losses = seen.experience, []
    assert data.group is not None
    outcome = by_hand.outcome(data)
    for label in data.group.unique():
        rows = ((data.group == label) & data.mask.any(1)).nonzero().flatten()
        best, worst = rows[outcome[rows].argmax()], rows[outcome[rows].argmin()]
        losses += [loss(values[best], values[worst])] if outcome[best] > outcome[worst] else []
    return torch.stack(losses).mean()


def log_ratios(seen: probes.Seen) -> Tensor:
    """Returns log pi(y) - log pi_ref(y) of each answer, [B]."""
    return (seen.logp() - seen.logp("reference").detach()).sum(1)


def means(seen: probes.Seen) -> Tensor:
    """Returns log pi(y) / |y| of each answer, [B]; 0 without a decision."""
    return seen.logp().sum(1) / seen.experience.mask.sum(1).clamp(min=1)
