"""Claims of lite-ppo: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Expect, Final, Largest, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, recipes
from assay.methods.lite_ppo import BatchDeviation, recipe


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    outcome = by_hand.outcome(data)
    advantage = by_hand.centred(data) / (outcome[data.mask.any(1)].std() + 1e-6)
    return by_hand.token_loss(seen, advantage)


def advantages(*right: int, size: int = 8) -> Tensor:
    """Returns the largest |advantage| of each group of `size` answers with these numbers of right ones."""
    data = probes.groups_with_right(*right, size=size)
    return probes.advantages(recipe(), data).view(len(right), size).abs().amax(1)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand),
        Exact("scales of two groups are those of their raw spreads", lambda: torch.div(*advantages(15, 8, size=16)),
              equals=1.875, tolerance=1e-6, illustrates=True),
        Measured("its largest gradient is smaller than grpo's", "levels", recipe(BIGRAMS), recipes.grpo(BIGRAMS),
                 Largest("gradient_norm/policy"), Expect.BELOW, seeds=10, minutes=6.0, steps=100, looks=2,
                 about=About.MECHANISM),
        Measured("where most prompts are easy the hard level is solved more often than by grpo", "levels:easy=0.9",
                 recipe(BIGRAMS), recipes.grpo(BIGRAMS), Final("pass_rate/2-hard"), minutes=6.0, steps=100, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("the deviation of centred outcomes", BatchDeviation.__call__,
             "mean = (outcome_B * share).sum() / share.sum().clamp(min=1)",
             "mean = groups.mean(outcome_B, groups.row_groups(experience))"),
    ),
)
