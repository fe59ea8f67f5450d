"""Claims of grpo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch

from assay.claims import Claims, Edit, Exact, by_hand, ignores_constants, learns_faster, probes, same_gradient
from assay.method import BIGRAMS, PLACES, recipes
from assay.parts import Clip


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience, epsilon=1e-4), low=0.2, high=0.2)


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is the formula's", recipes.grpo, loss_by_hand,
                      probes.off_policy(num=128)),
        Exact(
            "a step is two minibatches, so that ratios matter",
            lambda: probes.source_gap(recipes.grpo(), probes.sequences(), batches=2, epochs=1),
            equals=0.0,
        ),
        *ignores_constants(recipes.grpo(PLACES), recipes.reinforce(PLACES)),
        learns_faster("without a critic it learns faster than ppo from as many answers: mean pass rate",
                      recipes.grpo(BIGRAMS), recipes.ppo(BIGRAMS)),
    ),
    mutants=(
        Edit("one update a step", recipes.grpo, "preset.minibatch_source", "preset.on_policy_source"),
        Edit("a higher upper clip", recipes.grpo, "Clip(0.2, 0.2)", "Clip(0.2, 0.28)"),
        Edit("ratios of sequences", recipes.grpo, "SequenceMean())", "SequenceMean(), ratio=SequenceRatio())"),
        Edit("the mean of the batch", recipes.grpo, "OutcomeCredit(GroupMean()", "OutcomeCredit(BatchMean()"),
        Edit("no minimum", Clip.__call__, "torch.minimum(plain, clipped)", "clipped"),
    ),
)
