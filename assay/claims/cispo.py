"""Claims of cispo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch

from assay.claims import Claims, Edit, by_hand, learns_faster, not_worse, probes, same_gradient
from assay.method import BIGRAMS, recipes, with_token_clip


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    weight = by_hand.ratio(seen).detach().clamp(max=5.0)
    return -by_hand.mean_of_decisions(weight * by_hand.standardised(data).unsqueeze(1) * seen.logp(), data)


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is the formula's, inside the bound and beyond", recipes.cispo,
                      loss_by_hand, probes.off_policy(spread=6.0)),
        not_worse("it is not worse than grpo by more than 0.1", recipes.cispo(), recipes.grpo()),
        learns_faster("with sixteen updates on each batch it learns faster than dapo's clip: mean pass rate",
                      recipes.cispo(BIGRAMS).set("source.minibatches", 16),
                      with_token_clip(recipes.grpo(BIGRAMS), "dapo's clip", high=0.28).set("source.minibatches", 16)),
    ),
    mutants=(
        Edit("a lower bound", recipes.cispo, "StopGradientWeight(1.0, 4.0)", "StopGradientWeight(0.2, 4.0)"),
        Edit("dapo's upper bound", recipes.cispo, "StopGradientWeight(1.0, 4.0)", "StopGradientWeight(1.0, 0.28)"),
        Edit("dapo's clip", recipes.cispo, "StopGradientWeight(1.0, 4.0)", "Clip(0.2, 0.28)"),
    ),
)
