"""dr-grpo: grpo without its two biases: divides neither by the deviation nor by the sequence's length.

    A_i = R_i - mean R,  loss = -1/n sum_i 1/L sum_t min(rho_t A_i, clip(rho_t) A_i),  L a constant

Liu et al. 2025. On-policy its expected gradient points exactly along the gradient of the expected reward.
"""

import torch

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, by_hand, probes

LOGITS_PA = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
REWARD_PA = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])


def direction_on_uneven_prompts() -> float:
    return probes.compare(recipes.dr_grpo(), probes.bandit_episodes(REWARD_PA), LOGITS_PA, members=2).cosine


METHOD = Method(
    paper="arXiv:2503.20783",
    recipe=recipes.dr_grpo,
    family="policy gradient",
    base=recipes.grpo,
    departures=("the constant length is 64 unless set (objective.aggregate.length)",),
    claims=(
        Exact(
            "off-policy its gradient is the formula's",
            lambda: probes.formula_gap(recipes.dr_grpo(), probes.sequences(num=128), by_hand.dr_grpo_loss),
            at_most=1e-9,
        ),
        Exact(
            "the expected gradient has the exact direction, easy and hard prompts alike",
            direction_on_uneven_prompts,
            equals=1.0,
        ),
        Measured(
            "scores like grpo after 100 steps",
            "sorting-5",
            recipes.dr_grpo(),
            recipes.grpo(),
            expect=Expect.WITHIN,
            margin=0.1,
            seeds=5,
            minutes=4.0,
            steps=100,
            warmup=60,
        ),
    ),
    mutants=(
        Edit("the leave-one-out mean", recipes.dr_grpo, "GroupMean()", "LeaveOneOut()"),
        Edit("a higher upper clip", recipes.dr_grpo, "Clip(0.2, 0.2)", "Clip(0.2, 0.28)"),
        Edit("no clip", recipes.dr_grpo, "Clip(0.2, 0.2)", "NoTrust()"),
        Edit("a mean over tokens", recipes.dr_grpo, "FixedLength(length)", "TokenMean()"),
    ),
)
