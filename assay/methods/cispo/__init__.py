"""cispo: clips importance weights and stops their gradient, so that no token loses its own.

    loss = -1/(sum_i |y_i|) sum_i sum_t stop_gradient(min(rho_t, 1 + high)) A_i log pi(y_t)

MiniMax 2025. Where a clipped ratio would drop a token from the update, cispo only bounds its weight.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.recipes.defaults import EVERY

LOGITS_A = torch.zeros(2)


def push_at(ratio: float) -> torch.Tensor:
    """Returns the gradient of a correct answer at this ratio, relative to ratio one."""
    experience = probes.bandit_experience([0, 1], [1.0, 0.0], LOGITS_A)
    moved = experience.logp + torch.tensor([[ratio], [1.0]]).log()
    weight = probes.decision_weights(recipes.cispo(), experience, moved)[0, 0]
    return weight / probes.decision_weights(recipes.cispo(), experience, experience.logp)[0, 0]


METHOD = Method(
    paper="arXiv:2506.13585",
    recipe=recipes.cispo,
    worlds=EVERY,
    default_task="countdown",
    family="policy gradient",
    base=recipes.grpo,
    departures=("upper bound 5 (high = 4): the paper tunes it and gives no number",),
    claims=(
        Exact("inside the bound the weight is the ratio", lambda: push_at(3.0), equals=3.0),
        Exact("beyond it the weight stays at the bound, never 0", lambda: push_at(50.0), equals=5.0),
        Measured(
            "is not worse than grpo by more than 0.1",
            "sorting-5",
            recipes.cispo(),
            recipes.grpo(),
            margin=-0.1,
            seeds=5,
            minutes=4.0,
            steps=100,
            warmup=60,
        ),
    ),
)
