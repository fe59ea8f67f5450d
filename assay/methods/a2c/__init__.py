"""a2c: one on-policy step on generalised advantages, no ratio.

    loss = -mean_t A_t log pi(a_t|s_t) - e * entropy;   critic: mean_t (V(s_t) - A_t - V_old(s_t))^2 / 2

Mnih et al. 2016 without the asynchrony. At ratio one its gradient is ppo's.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.recipes.defaults import EVERY


def distance_from_ppo_at_ratio_one() -> torch.Tensor:
    experience = probes.bandit_experience([0, 1, 1, 0], [1.0, 0.0, 0.5, 0.2], torch.tensor([0.3, -0.2]))
    value = torch.full_like(experience.reward, 0.4)
    weights = [
        probes.decision_weights(base(), experience, experience.logp, value=value) for base in (recipes.a2c, recipes.ppo)
    ]
    return (weights[0] - weights[1]).abs().max()


METHOD = Method(
    paper="arXiv:1602.01783",
    recipe=recipes.a2c,
    worlds=EVERY,
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    departures=("synchronous", "generalised advantages instead of n-step returns", "Adam instead of RMSProp"),
    claims=(
        Exact("at ratio one its gradient is ppo's", distance_from_ppo_at_ratio_one, equals=0.0),
        Measured("balances: return above 400", "cartpole", recipes.a2c(), 400.0, seeds=10, minutes=4),
    ),
)
