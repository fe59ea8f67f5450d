"""Claims of reinforce: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch

from assay.claims import Claims, Edit, Exact, by_hand, learns_faster, probes, same_gradient, without_baseline
from assay.method import BIGRAMS, recipes
from assay.parts import OutcomeCredit

LOGITS_A = torch.tensor([1.0, 0.4, -0.3, -1.2])


REWARD_A = torch.tensor([0.2, 1.0, 0.0, 0.7])


MEMBERS = 3


def distance_from_the_scaled_gradient() -> torch.Tensor:
    expected = -probes.expected_gradient(recipes.reinforce(), LOGITS_A, REWARD_A, MEMBERS)
    return (expected - (MEMBERS - 1) / MEMBERS * probes.exact_bandit_gradient(LOGITS_A, REWARD_A)).norm()


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data = seen.experience
    outcome = by_hand.outcome(data)
    advantage = outcome - outcome[data.mask.any(1)].mean()
    return -by_hand.sum_in_sequences(advantage.unsqueeze(1) * seen.logp(), data)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipes.reinforce, loss_by_hand),
        Exact("its expected gradient is the exact one times (n - 1) / n",
              distance_from_the_scaled_gradient, equals=0.0),
        Exact(
            "a step is one update on all decisions",
            lambda: probes.source_gap(recipes.reinforce(), probes.sequences(), batches=1, epochs=1),
            equals=0.0,
        ),
        learns_faster("where most answers are right it learns faster than without a baseline: mean pass rate",
                      recipes.reinforce(BIGRAMS), without_baseline(BIGRAMS), "levels:easy=0.9"),
    ),
    mutants=(
        Edit("a baseline of the group", recipes.reinforce, "BatchMean()", "GroupMean()"),
        Edit("a mean over tokens", recipes.reinforce, "SequenceSum()", "TokenMean()"),
        Edit(
            "reward to the last decision alone",
            OutcomeCredit.apply,
            "experience.mask,",
            "experience.mask * (experience.reward != 0),",
        ),
        Edit("several updates a step", recipes.group_reinforce, "preset.on_policy_source", "preset.minibatch_source"),
    ),
)
