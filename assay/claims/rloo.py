"""Claims of rloo: its loss by hand, exact and measured claims, mutants."""

import torch

from assay.claims import Claims, Edit, Exact, Expect, Final, Measured, by_hand, probes, same_gradient
from assay.method import PLACES, recipes

LOGITS_A = torch.tensor([1.0, 0.4, -0.3, -1.2])


REWARD_A = torch.tensor([0.2, 1.0, 0.0, 0.7])


def bias() -> torch.Tensor:
    expected = -probes.expected_gradient(recipes.rloo(), LOGITS_A, REWARD_A, members=3)
    return (expected - probes.exact_bandit_gradient(LOGITS_A, REWARD_A)).norm()


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipes.rloo, by_hand.rloo_loss),
        Exact("the gradient is unbiased", bias, equals=0.0, tolerance=1e-10),
        Measured(
            "where prompts pay unequal constants it scores higher than reinforce; refuted by a lead below 0.1",
            "hackable:hack=0,offset=5",
            recipes.rloo(PLACES),
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
            recipes.rloo(PLACES),
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
        Edit("the group mean", recipes.rloo, "LeaveOneOut()", "GroupMean()"),
        Edit("a mean over tokens", recipes.rloo, "SequenceSum()", "TokenMean()"),
    ),
)
