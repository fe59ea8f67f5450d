"""Claims of grpo: its loss by hand, exact and measured claims, mutants."""

import torch

from assay.claims import About, Claims, Edit, Exact, Expect, Final, Measured, by_hand, learns_faster, probes
from assay.method import BIGRAMS, PLACES, recipes
from assay.parts import Clip


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience, epsilon=1e-4), low=0.2, high=0.2)


CLAIMS = Claims(
    claims=(
        Exact(
            "off-policy its gradient is the formula's",
            lambda: probes.formula_gap(
                recipes.grpo(), (lambda: probes.sequences(num=128), probes.graded, probes.signed), loss_by_hand
            ),
            at_most=1e-9,
        ),
        Exact(
            "a step is two minibatches, so that ratios matter",
            lambda: probes.source_gap(recipes.grpo(), probes.sequences(), batches=2, epochs=1),
            equals=0.0,
        ),
        Measured(
            "where prompts pay unequal constants it scores higher than reinforce; refuted by a lead below 0.1",
            "hackable:hack=0,offset=5",
            recipes.grpo(PLACES),
            recipes.reinforce(PLACES),
            Final("true_score"),
            margin=0.1,
            seeds=5,
            minutes=1.0,
            steps=60,
            about=About.MECHANISM,
        ),
        Measured(
            "where prompts pay no constants its score is within 0.05 of reinforce's",
            "hackable:hack=0,offset=0",
            recipes.grpo(PLACES),
            recipes.reinforce(PLACES),
            Final("true_score"),
            Expect.WITHIN,
            margin=0.05,
            seeds=5,
            minutes=1.0,
            steps=60,
            about=About.COMPONENT,
        ),
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
