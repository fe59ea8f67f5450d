"""Claims of sapo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch

from assay.claims import Claims, Edit, by_hand, learns_faster, not_worse, probes, reused, same_gradient
from assay.method import BIGRAMS, recipes


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    advantage, ratio = by_hand.standardised(seen.experience).unsqueeze(1), by_hand.ratio(seen)
    good = 4.0 / (1.0 + (1.0 - ratio).exp())
    bad = 4.0 / 1.05 / (1.0 + (1.05 * (1.0 - ratio)).exp())
    return -by_hand.mean_of_sequences(torch.where(advantage > 0, good, bad) * advantage, seen.experience)


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is the formula's", recipes.sapo, loss_by_hand,
                      probes.off_policy(spread=2.0), at_most=1e-6),
        not_worse("it is not worse than grpo by more than 0.1", recipes.sapo(), recipes.grpo()),
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
