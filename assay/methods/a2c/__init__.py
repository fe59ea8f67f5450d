"""a2c: one on-policy step on generalised advantages, no ratio.

    loss = -mean_t A_t log pi(a_t|s_t) - e * entropy;   critic: mean_t (V(s_t) - A_t - V_old(s_t))^2 / 2

Mnih et al. 2016 without the asynchrony. At ratio one its gradient is ppo's.
"""

import torch

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, by_hand, probes, same_gradient


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    data, value = seen.experience, seen.value()
    advantage = by_hand.gae(data, value, discount=0.98, gae_lambda=0.9)
    gain = by_hand.whitened(advantage, data) * seen.logp()
    error = value - (advantage + value).detach()
    return {
        "policy": -by_hand.mean_of_decisions(gain + 0.003 * by_hand.entropy(seen), data),
        "value": by_hand.mean_of_decisions(error.square() / 2, data),
    }


METHOD = Method(
    paper="arXiv:1602.01783",
    recipe=recipes.a2c,
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    departures=("synchronous", "generalised advantages instead of n-step returns", "Adam instead of RMSProp"),
    claims=(
        same_gradient("its gradients are the formula's", recipes.a2c, losses_by_hand, probes.fragments),
        Exact(
            "a step is one update on all decisions",
            lambda: probes.source_gap(recipes.a2c(), probes.fragments(), batches=1, epochs=1),
            equals=0.0,
        ),
        Measured(
            "from 30,720 decisions it learns more than half of what a random MDP's optimum is above chance",
            "random-mdp",
            recipes.a2c().set("steps", 120),
            0.5,
            seeds=5,
            looks=3,
        ),
    ),
    mutants=(
        Edit("several epochs", recipes.a2c, "source=world.once", "source=world.reuse"),
        Edit(
            "no entropy bonus",
            recipes.a2c,
            "objective=(PolicyGradient(trust=NoTrust()),)",
            "objective=(PolicyGradient(trust=NoTrust()),), regularizers=()",
        ),
    ),
)
