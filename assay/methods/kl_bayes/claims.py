"""The losses of kl-bayes and of matching by hand."""

import torch

from assay.claims import by_hand, probes


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return by_hand.rloo_loss(by_hand.with_kl(seen, 0.1))


def matching_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    moved = torch.where(data.mask, seen.logp("reference").detach() - data.logp, 0.0).sum(1)
    log_weight = moved + by_hand.outcome(data) / 0.1
    advantage = by_hand.in_groups(log_weight, data, lambda one: one.exp() / one.exp().mean() - 1.0)
    return -by_hand.sum_in_sequences(advantage.unsqueeze(1) * seen.logp(), data)
