"""sapo: a smooth gate on the importance ratio instead of a hard clip.

    loss = -1/G sum_i 1/|y_i| sum_t (4 / tau) sigmoid(tau (rho_t - 1)) A_i,   tau = 1 where A > 0, else 1.05

Qwen team 2025. The gradient's weight, 4 s (1 - s) with s = sigmoid(tau (rho - 1)), is 1 at ratio one and decays on
both sides; tokens with negative advantages decay sooner, as they move probability to many others.
"""

import torch

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, by_hand, probes


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    advantage, ratio = by_hand.standardised(seen.experience).unsqueeze(1), by_hand.ratio(seen)
    good = 4.0 / (1.0 + (1.0 - ratio).exp())
    bad = 4.0 / 1.05 / (1.0 + (1.05 * (1.0 - ratio)).exp())
    return -by_hand.mean_of_sequences(torch.where(advantage > 0, good, bad) * advantage, seen.experience)


METHOD = Method(
    paper="arXiv:2511.20347",
    recipe=recipes.sapo,
    family="policy gradient",
    base=recipes.grpo,
    claims=(
        Exact(
            "off-policy its gradient is the formula's",
            lambda: probes.formula_gap(recipes.sapo(), probes.sequences(spread=2.0), loss_by_hand),
            at_most=1e-6,
        ),
        Measured("is not worse than grpo by more than 0.1", "sorting-5", recipes.sapo(), recipes.grpo(), margin=-0.1,
                 seeds=5, minutes=4.0, steps=100, warmup=60),
    ),
    mutants=(
        Edit("one temperature", recipes.sapo, "SoftGate(1.0, 1.05)", "SoftGate(1.0, 1.0)"),
        Edit("temperatures exchanged", recipes.sapo, "SoftGate(1.0, 1.05)", "SoftGate(1.05, 1.0)"),
        Edit("a mean over tokens", recipes.sapo, "SequenceMean()", "TokenMean()"),
    ),
)  # fmt: skip
