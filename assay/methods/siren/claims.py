"""Siren's loss by hand, and its entropy on single distributions. Axes: B rows, T decisions, A actions."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.record import Experience
from assay.ops.logits import nucleus_entropy
from assay.parts.regularizers.entropy import OfNucleus

FIRST, second = (probes.sequences(seed=1, num=32),), partial(probes.sequences, num=128)
"""The batch of the anchor, and the one that is trained on."""


def entropy_by_hand(logits_A: Tensor, of: OfNucleus) -> Tensor:
    """Returns the entropy of the nucleus, action by action from the likeliest."""
    prob, kept, total = logits_A.softmax(-1), [], 0.0
    for action in logits_A.argsort(descending=True).tolist():
        if (total if of.crossing else total + float(prob[action].detach())) >= of.mass:
            break
        kept.append(action)
        total += float(prob[action].detach())
    q = prob[kept] / prob[kept].sum()
    return -(q * q.log()).sum()


def mean_by_hand(data: Experience, table: Tensor, of: OfNucleus, peak: float) -> Tensor:
    """Returns Hbar of a table policy: rows one by one, decisions above the row's quantile."""
    means = []
    for row in data.mask.any(1).nonzero().flatten().tolist():
        states = data.context["state"][row][data.mask[row]].tolist()
        found = torch.stack([entropy_by_hand(table[state], of) for state in states])
        above = found[found > found.detach().quantile(peak)] if peak > 0 else found
        means.append(above.mean() if len(above) else found.new_zeros(()))
    return torch.stack(means).mean()


def loss_by_hand(seen: probes.Seen, of: OfNucleus = OfNucleus(), peak: float = 0.8, beta: float = 0.005) -> Tensor:
    table = seen.models["actor"].body.table
    anchor = mean_by_hand(FIRST[0], table, of, peak).detach()
    away = mean_by_hand(seen.experience, table, of, peak) - anchor
    return beta * away.square() + by_hand.dr_grpo_loss(seen, 0.28, 0.28)


def nucleus(*prob: float) -> tuple[Tensor, Tensor]:
    """Returns the entropy of the nucleus of 0.8 and its gradient in the logits, [A]."""
    logits = torch.tensor(prob or (0.5, 0.25, 0.15, 0.07, 0.03)).double().log().requires_grad_()
    entropy = nucleus_entropy(logits.log_softmax(-1), 0.8)
    return entropy, torch.autograd.grad(entropy, logits)[0]
