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
from assay.parts.credit.temporal import Gae
from assay.recipes.defaults import EVERY

EPISODES = probes.token_episodes(lambda tokens: sum(tokens) / 3, num_tokens=2, horizon=3)


def distance_from_monte_carlo() -> torch.Tensor:
    """Returns the first decision's return minus the outcome; with decay 1 and discount 1 the critic cancels."""
    record = EPISODES.record(torch.arange(8).unsqueeze(0), torch.zeros(EPISODES.num_states, 2))
    value = torch.linspace(-1.0, 1.0, record.mask.numel(), dtype=torch.float64).view_as(record.reward)
    credited = Gae(discount=1.0, gae_lambda=1.0)(record.add({"value": value}))
    return (credited.column("return")[:, 0] - (record.reward * record.mask).sum(1)).abs().max()


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
            "with decay 1 the return is the outcome, whatever the critic says", distance_from_monte_carlo, equals=0.0
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
