"""Claims of grpo: its loss by hand, exact and measured claims, mutants."""

import torch

from assay.claims import Claims, Edit, Exact, Expect, Final, Measured, by_hand, probes
from assay.method import PLACES, recipes
from assay.parts import Clip

EASY_A, EVEN_A = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 0.0])


REWARD_A = torch.tensor([1.0, 0.0])
"""Two prompts with two answers, the first one correct: drawn 95 in 100 times for the easy prompt, half for the even."""


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience, epsilon=1e-4), low=0.2, high=0.2)


def weight_of_easy_over_even() -> float:
    """Returns expected over exact gradient of the easy prompt, divided by that of the even one; 1 without bias."""
    episodes = probes.bandit_episodes(REWARD_A)
    easy, even = (probes.compare(recipes.grpo(), episodes, logits, members=6).scale for logits in (EASY_A, EVEN_A))
    return easy / even


CLAIMS = Claims(
    claims=(
        Exact(
            "off-policy its gradient is the formula's",
            lambda: probes.formula_gap(recipes.grpo(), probes.sequences(num=128), loss_by_hand),
            at_most=1e-9,
        ),
        Exact(
            "a step is two minibatches, so that ratios matter",
            lambda: probes.source_gap(recipes.grpo(), probes.sequences(), batches=2, epochs=1),
            equals=0.0,
        ),
        Exact(
            "dividing by the deviation weighs an easy prompt more than an even one",
            weight_of_easy_over_even,
            at_least=1.2,
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
        ),
        Measured(
            "where they pay none, their scores are within 0.05",
            "hackable:hack=0,offset=0",
            recipes.grpo(PLACES),
            recipes.reinforce(PLACES),
            Final("true_score"),
            Expect.WITHIN,
            margin=0.05,
            seeds=5,
            minutes=1.0,
            steps=60,
        ),
    ),
    mutants=(
        Edit("one update a step", recipes.grpo, "preset.minibatch_source", "preset.on_policy_source"),
        Edit("a higher upper clip", recipes.grpo, "Clip(0.2, 0.2)", "Clip(0.2, 0.28)"),
        Edit("ratios of sequences", recipes.grpo, "SequenceMean())", "SequenceMean(), ratio=SequenceRatio())"),
        Edit("the mean of the batch", recipes.grpo, "OutcomeCredit(GroupMean()", "OutcomeCredit(BatchMean()"),
        Edit("no minimum", Clip.__call__, "torch.minimum(plain, clipped)", "clipped"),
    ),
)
