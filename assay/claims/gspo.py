"""Claims of gspo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch

from assay.claims import About, Average, Claims, Edit, Measured, by_hand, learns_faster, probes, same_gradient
from assay.method import PLACES, recipes


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, advantage_B = seen.experience, by_hand.standardised(seen.experience)
    log_ratio_B = ((seen.logp() - data.logp) * data.mask).sum(1) / data.mask.sum(1).clamp(min=1)
    gain_B = by_hand.clipped(log_ratio_B.exp(), advantage_B, low=3e-4, high=4e-4)
    return -gain_B[data.mask.any(1)].mean()


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is the formula's", recipes.gspo, loss_by_hand,
                      probes.off_policy(num=256, spread=4.0)),
        Measured("it cuts off a larger share of tokens than grpo", "sorting-5", recipes.gspo(), recipes.grpo(),
                 Average("clipped"), seeds=5, minutes=4.0, steps=100, warmup=60, about=About.MECHANISM),
        learns_faster("with four updates on each batch of answers of 32 tokens it learns faster than grpo: "
                      "mean pass rate", recipes.gspo(PLACES).set("source.minibatches", 4),
                      recipes.grpo(PLACES).set("source.minibatches", 4), "key-decisions:length=32"),
    ),
    mutants=(
        Edit("grpo's clip", recipes.gspo, "Clip(3e-4, 4e-4)", "Clip(0.2, 0.2)"),
        Edit("an even clip", recipes.gspo, "Clip(3e-4, 4e-4)", "Clip(3e-4, 3e-4)"),
        Edit("ratios of tokens", recipes.gspo, "ratio=SequenceRatio(), ", ""),
    ),
)
