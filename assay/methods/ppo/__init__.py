"""ppo: generalised advantages from a critic, clipped ratio, several epochs.

    loss = -mean_t min(rho_t A_t, clip(rho_t, 1 - c, 1 + c) A_t) - e * entropy
    critic: mean_t (V(s_t) - A_t - V_old(s_t))^2 / 2

Schulman et al. 2017. The same credit and objective parts serve control and language; a truncated episode bootstraps,
a terminated one does not.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import DecisionsTo, Exact, Expect, Measured, Method
from assay.claims.probes import by_hand
from assay.recipes.defaults import EVERY


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    data, value = seen.experience, seen.value()
    advantage = by_hand.gae(data, value, discount=0.98, gae_lambda=0.9)
    gain = by_hand.clipped(by_hand.ratio(seen), by_hand.whitened(advantage, data), low=0.2, high=0.2)
    error = value - (advantage + value).detach()
    return {
        "policy": -by_hand.mean_of_decisions(gain + 0.003 * by_hand.entropy(seen), data),
        "value": by_hand.mean_of_decisions(error.square() / 2, data),
    }


METHOD = Method(
    paper="arXiv:1707.06347",
    recipe=recipes.ppo,
    worlds=EVERY,
    default_task="cartpole",
    family="policy gradient",
    departures=(
        "advantages are whitened over the whole batch, not over each minibatch",
        "actor and critic have their own networks, optimizers and gradient clipping",
        "no value clipping",
    ),
    claims=(
        Exact(
            "off-policy its gradients are the formula's",
            lambda: probes.formula_gap(recipes.ppo(), probes.fragments(), losses_by_hand),
            at_most=1e-9,
        ),
        Measured(
            "reaches 475 on CartPole in fewer decisions than a2c",
            "cartpole",
            recipes.ppo(),
            recipes.a2c(),
            metric=DecisionsTo(475.0),
            expect=Expect.BELOW,
            seeds=10,
            minutes=6,
        ),
    ),
)
