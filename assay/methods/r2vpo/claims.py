"""The formulas behind r2vpo's exact claims. Axes: B sequences, T decisions, A actions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.core.slots.scene import ALONE
from assay.methods.r2vpo.parts import VARIANCE, FollowVariance


def loss_by_hand(seen: probes.Seen, weight: float = 1.0) -> Tensor:
    """Returns the loss of tokens with a multiplier `weight`."""
    data, ratio = seen.experience, by_hand.ratio(seen)
    gain = ratio * by_hand.standardised(data).unsqueeze(1) - weight * (ratio - 1) ** 2
    return -by_hand.mean_of_decisions(gain, data)


def losses_of_torques(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses of networks on continuous actions: Gaussian policy, value."""
    return by_hand.ppo_of_torques(seen, lambda ratio, ahead: ratio * ahead - (ratio - 1) ** 2)


def brake(ours: Recipe, ratio: float, advantage: float) -> Tensor:
    """Returns the coefficient of grad log pi of one decision with this ratio."""
    data = probes.outcomes(0.0)
    data = ours.credit[-1](data.add({"advantage": data.reward + advantage}))
    return -probes.slopes(ours, data, data.logp + math.log(ratio)).squeeze()


def dual(part: FollowVariance, steps: int = 1500) -> float:
    """Returns the multiplier of three actions with probabilities .5, .3 and .2 and advantages 1, -.5 and -1.75, if
    every step ends at its optimum, ratio = 1 + (A - E A) / (2 lambda).
    """
    prob, advantage = torch.tensor([[0.5, 0.3, 0.2], [1.0, -0.5, -1.75]]).double()
    state = part.init(ALONE)
    for _ in range(steps):
        above = (advantage - prob @ advantage) / (2.0 * state["multiplier"])
        part.updated({VARIANCE: float(prob @ above.square())}, state)
    return float(state["multiplier"])
