"""sapo: a smooth gate on the importance ratio instead of a hard clip.

    loss = -1/G sum_i 1/|y_i| sum_t (4 / tau) sigmoid(tau (rho_t - 1)) A_i,   tau = 1 where A > 0, else 1.05

Qwen team 2025. The gradient's weight, 4 s (1 - s) with s = sigmoid(tau (rho - 1)), is 1 at ratio one and decays on
both sides; tokens with negative advantages decay sooner, as they move probability to many others.
"""

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.recipes.defaults import EVERY

LOGITS_A = torch.zeros(2)


def push_at(ratio: float, place: int = 0) -> torch.Tensor:
    """Returns the gradient of a decision (0: good, 1: bad) at this ratio, relative to grpo's at ratio one."""
    experience = probes.bandit_experience([0, 1], [1.0, 0.0], LOGITS_A)
    moved = experience.logp.clone()
    moved[place] += torch.tensor(ratio).log()
    weight = probes.decision_weights(recipes.sapo(), experience, moved)[place, 0]
    return weight / probes.decision_weights(recipes.grpo(), experience, experience.logp)[place, 0]


def faded(ratio: float, tau: float) -> float:
    """Returns rho * 4 s (1 - s)."""
    s = 1.0 / (1.0 + float(torch.tensor(-tau * (ratio - 1.0)).exp()))
    return ratio * 4.0 * s * (1.0 - s)


METHOD = Method(
    paper="arXiv:2511.20347",
    recipe=recipes.sapo,
    worlds=EVERY,
    default_task="countdown",
    family="policy gradient",
    base=recipes.grpo,
    claims=(
        Exact("at ratio one its push is grpo's, good or bad", lambda: push_at(1.0) - push_at(1.0, 1), equals=0.0),
        Exact("at ratio one its push is grpo's", lambda: push_at(1.0), equals=1.0),
        Exact("a good token beyond the clip still pushes, less", lambda: push_at(2.0) - faded(2.0, 1.0), equals=0.0),
        Exact("a bad one fades sooner", lambda: push_at(2.0, 1) - faded(2.0, 1.05), equals=0.0),
        Measured("is not worse than grpo by more than 0.1", "sorting-5", recipes.sapo(), recipes.grpo(), margin=-0.1,
                 seeds=5, minutes=4.0, steps=100, warmup=60),
    ),
)  # fmt: skip
