"""Siren's loss by hand. Axes: B rows, T decisions, S states, A actions."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.record import Experience

FIRST, second = (probes.sequences(seed=1, num=32),), partial(probes.sequences, num=128)
"""The batch of the anchor, and the one that is trained on."""


def entropy_by_hand(logits_A: Tensor, mass: float, *, crossing: bool) -> Tensor:
    """Returns the entropy of the nucleus, action by action from the likeliest."""
    prob, kept, total = logits_A.softmax(-1), [], 0.0
    for action in logits_A.argsort(descending=True).tolist():
        if (total if crossing else total + float(prob[action].detach())) >= mass:
            break
        kept.append(action)
        total += float(prob[action].detach())
    q = prob[kept] / prob[kept].sum()
    return -(q * q.log()).sum()


def mean_by_hand(data: Experience, entropy_S: Tensor, peak: float) -> Tensor:
    """Returns Hbar of a table policy: rows one by one, decisions above the row's quantile."""
    means = []
    for row in data.mask.any(1).nonzero().flatten().tolist():
        found = entropy_S[data.context["state"][row][data.mask[row]]]
        above = found[found > found.detach().quantile(peak)] if peak > 0 else found
        means.append(above.mean() if len(above) else found.new_zeros(()))
    return torch.stack(means).mean()


def loss_by_hand(
    seen: probes.Seen, mass: float = 0.8, peak: float = 0.8, beta: float = 0.005, *, crossing: bool = False
) -> Tensor:
    entropy_S = torch.stack([entropy_by_hand(row, mass, crossing=crossing) for row in seen.models["actor"].body.table])
    anchor = mean_by_hand(FIRST[0], entropy_S, peak).detach()
    away = mean_by_hand(seen.experience, entropy_S, peak) - anchor
    return beta * away.square() + by_hand.dr_grpo_loss(seen, 0.28, 0.28)
