"""The formulas behind ppo's exact claims. Axes: B sequences, T decisions."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.record import Experience


def losses(data: Experience, ratio: Tensor, entropy: Tensor, value: Tensor, advantage: Tensor) -> dict[str, Tensor]:
    """Returns the loss of the policy and of the critic."""
    gain = by_hand.clipped(ratio, by_hand.whitened(advantage, data), low=0.2, high=0.2)
    error = value - (advantage + value).detach()
    return {
        "policy": -by_hand.mean_of_decisions(gain + 0.003 * entropy, data),
        "value": by_hand.mean_of_decisions(error.square() / 2, data),
    }


def losses_by_hand(seen: probes.Seen, discount: float = 0.98, gae_lambda: float = 0.9) -> dict[str, Tensor]:
    """Returns the losses of tables."""
    advantage = by_hand.gae(seen.experience, seen.value(), discount, gae_lambda)
    return losses(seen.experience, by_hand.ratio(seen), by_hand.entropy(seen), seen.value(), advantage)


def losses_of_torques(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses of networks on continuous actions."""
    data, actor = seen.experience, seen.models["actor"]
    density = torch.distributions.Normal(actor.body(data.context), actor.log_std.exp())
    ratio = torch.where(data.mask, density.log_prob(data.action).sum(-1) - data.logp, 0.0).exp()
    value = seen.models["value"].body(data.context).squeeze(-1)
    advantage = by_hand.gae(data, value, discount=0.95, gae_lambda=0.95)
    return losses(data, ratio, density.entropy().sum(-1), value, advantage)
