"""Claims of cispo: its loss by hand, exact and measured claims, mutants."""

import torch

from assay.claims import About, Claims, Edit, Exact, Measured, by_hand, learns_faster, probes
from assay.method import BIGRAMS, recipes, with_token_clip


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    weight = by_hand.ratio(seen).detach().clamp(max=5.0)
    return -by_hand.mean_of_decisions(weight * by_hand.standardised(data).unsqueeze(1) * seen.logp(), data)


CLAIMS = Claims(
    claims=(
        Exact(
            "off-policy its gradient is the formula's, inside the bound and beyond",
            lambda: probes.formula_gap(
                recipes.cispo(), (lambda: probes.sequences(spread=6.0), probes.graded, probes.signed), loss_by_hand
            ),
            at_most=1e-9,
        ),
        Measured(
            "it is not worse than grpo by more than 0.1",
            "sorting-5",
            recipes.cispo(),
            recipes.grpo(),
            margin=-0.1,
            seeds=5,
            minutes=4.0,
            steps=100,
            warmup=60,
            about=About.MECHANISM,
        ),
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
