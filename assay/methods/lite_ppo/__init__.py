"""lite-ppo: grpo with the deviation of the whole batch as scale and one mean over all tokens.

    A = (R - mean of the group) / (std of the batch + 1e-6);   loss = -mean_t min(rho_t A, clip(rho_t, 0.8, 1.2) A)

Liu et al. 2025 ("Tricks or Traps?"). The deviation of a group whose answers are nearly all right is small, and its
lone failure gets a large advantage; the deviation of all outcomes does not depend on the group.
"""

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Edit, Exact, Expect, Final, Largest, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.methods.lite_ppo.credit import BatchDeviation
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_token_clip


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    base = replace(recipes.grpo(world), credit=(OutcomeCredit(GroupMean(), BatchDeviation()),))
    return with_token_clip(base, "lite-ppo")


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    outcome = by_hand.outcome(data)
    advantage = by_hand.centred(data) / (outcome[data.mask.any(1)].std() + 1e-6)
    return by_hand.token_loss(seen, advantage)


def advantages(*right: int, size: int = 8) -> Tensor:
    """Returns the largest |advantage| of each group of `size` answers with these numbers of right ones."""
    data = probes.groups_with_right(*right, size=size)
    return probes.advantages(recipe(), data).view(len(right), size).abs().amax(1)


METHOD = Method(
    paper="arXiv:2508.08221",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "the deviation has n - 1, as torch's default in the authors' framework; the paper does not say",
        "where nearly all answers are right the batch's own deviation is small and the largest gradient above grpo's "
        "(levels:easy=0.9: 0.040 against 0.031, 5 pilot seeds)",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand),
        Exact("a lone failure of eight beside a group half right", lambda: advantages(7, 4)[0], equals=1.82782,
              tolerance=1e-4),
        Exact("scales of two groups are those of their raw spreads", lambda: torch.div(*advantages(15, 8, size=16)),
              equals=1.875, tolerance=1e-6),
        Measured("its largest gradient is smaller than grpo's", "levels", recipe(BIGRAMS), recipes.grpo(BIGRAMS),
                 Largest("gradient_norm/policy"), Expect.BELOW, seeds=10, minutes=6.0, steps=100, looks=2),
        Measured("where most prompts are easy the hard level is solved more often than by grpo", "levels:easy=0.9",
                 recipe(BIGRAMS), recipes.grpo(BIGRAMS), Final("pass_rate/2-hard"), minutes=6.0, steps=100, looks=2),
    ),
    mutants=(
        Edit("the deviation of centred outcomes", BatchDeviation.__call__,
             "mean = (outcome_B * share).sum() / share.sum().clamp(min=1)",
             "mean = groups.mean(outcome_B, groups.row_groups(experience))"),
    ),
)  # fmt: skip
