"""The losses of kl-bayes and of matching by hand."""

from dataclasses import replace

import torch

from assay.claims import by_hand, probes


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    moved = torch.where(data.mask, data.logp - seen.logp("reference").detach(), 0.0)
    advantage = by_hand.against_others(replace(data, reward=data.reward - 0.1 * moved))
    return -by_hand.sum_in_sequences(advantage.unsqueeze(1) * seen.logp(), data)


def matching_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    moved = torch.where(data.mask, seen.logp("reference").detach() - data.logp, 0.0).sum(1)
    log_weight = moved + by_hand.outcome(data) / 0.1
    advantage = by_hand.in_groups(log_weight, data, lambda one: one.exp() / one.exp().mean() - 1.0)
    return -by_hand.sum_in_sequences(advantage.unsqueeze(1) * seen.logp(), data)
