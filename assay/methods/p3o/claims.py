"""The loss of pairs by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.claims import by_hand, probes


def over_pairs(seen: probes.Seen, gain_of: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Returns minus the mean gain over the answers of pairs, each given how far its reward is ahead, its log-ratio and
    the other's.
    """
    reward, moved = by_hand.outcome(by_hand.with_kl(seen, 0.05).experience), by_hand.moved(seen)
    pairs = [rows for rows in by_hand.rows_of_groups(seen.experience) if len(rows) == 2]
    both = [pair for one, other in pairs for pair in ((one, other), (other, one))]
    return -torch.stack([gain_of(reward[i] - reward[j], moved[i], moved[j]) for i, j in both]).mean()


def loss_by_hand(seen: probes.Seen) -> Tensor:
    return over_pairs(seen, lambda ahead, own, other: by_hand.clipped(
        own.exp(), ahead * other.exp().detach(), 0.2, 0.2) / 2)  # fmt: skip


def joint_by_hand(seen: probes.Seen) -> Tensor:
    def gain(ahead: Tensor, own: Tensor, other: Tensor) -> Tensor:
        odds, scale = own - other, ahead * (own + other).exp().detach()
        return scale * (odds.detach() if scale * odds > 0 and odds.abs() > 0.2 else odds) / 4

    return over_pairs(seen, gain)
