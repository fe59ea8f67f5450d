"""Claims of sapo: its loss by hand, exact and measured claims, mutants."""

import torch

from assay.claims import About, Claims, Edit, Exact, Measured, by_hand, learns_faster, probes, reused
from assay.method import BIGRAMS, recipes


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    advantage, ratio = by_hand.standardised(seen.experience).unsqueeze(1), by_hand.ratio(seen)
    good = 4.0 / (1.0 + (1.0 - ratio).exp())
    bad = 4.0 / 1.05 / (1.0 + (1.05 * (1.0 - ratio)).exp())
    return -by_hand.mean_of_sequences(torch.where(advantage > 0, good, bad) * advantage, seen.experience)


CLAIMS = Claims(
    claims=(
        Exact(
            "off-policy its gradient is the formula's",
            lambda: probes.formula_gap(
                recipes.sapo(), (lambda: probes.sequences(spread=2.0), probes.graded, probes.signed), loss_by_hand
            ),
            at_most=1e-6,
        ),
        Measured("it is not worse than grpo by more than 0.1", "sorting-5", recipes.sapo(), recipes.grpo(), margin=-0.1,
                 seeds=5, minutes=4.0, steps=100, warmup=60, about=About.MECHANISM),
        learns_faster("when every batch is used eight times it learns faster than gspo: mean pass rate",
                      reused(recipes.sapo(BIGRAMS)), reused(recipes.gspo(BIGRAMS))),
        learns_faster("when every batch is used eight times it learns faster than grpo: mean pass rate",
                      reused(recipes.sapo(BIGRAMS)), reused(recipes.grpo(BIGRAMS))),
    ),
    mutants=(
        Edit("one temperature", recipes.sapo, "SoftGate(1.0, 1.05)", "SoftGate(1.0, 1.0)"),
        Edit("temperatures exchanged", recipes.sapo, "SoftGate(1.0, 1.05)", "SoftGate(1.05, 1.0)"),
        Edit("a mean over tokens", recipes.sapo, "SequenceMean()", "TokenMean()"),
    ),
)
