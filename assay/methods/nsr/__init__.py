"""nsr: reinforces right answers a tenth as much as it suppresses wrong ones, without a baseline.

    A = 0.1 for a right answer, -1 for a wrong one;   loss = -mean_t min(rho_t A, clip(rho_t, 1 - 0.2, 1 + 0.2) A)

Zhu et al. 2025. `nsr-only` and `psr` drop the answers of the other kind before the mean. In expectation and on-policy
the three have the same direction (rewards that differ by a constant do); what differs are finite samples, the number
of answers in the mean, and the clip. Wrong answers give their probability to all others, right ones take it from all
others, so diversity lasts longer. A policy that is nearly always wrong is ruined by wrong answers alone.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method, by_hand, probes
from assay.core.recipe import Recipe
from assay.parts.credit.outcome import Constant, OutcomeCredit
from assay.parts.credit.reweigh import BySign, Reweigh, WithoutIdle
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_token_clip


def recipe(world: Defaults = LANGUAGE, right: float = 0.1, wrong: float = 1.0) -> Recipe:
    signs = OutcomeCredit(Constant(0.5), Constant(0.5))  # +1 and -1
    weighed = replace(recipes.grpo(world), credit=(signs, Reweigh(BySign(right, wrong)), WithoutIdle()))
    return with_token_clip(weighed, "nsr")


def negative(world: Defaults = LANGUAGE) -> Recipe:
    """Wrong answers alone."""
    return recipe(world, right=0.0)


def positive(world: Defaults = LANGUAGE) -> Recipe:
    """Right answers alone."""
    return recipe(world, right=1.0, wrong=0.0)


def loss_by_hand(seen: probes.Seen, right: float, wrong: float) -> torch.Tensor:
    is_right = by_hand.outcome(seen.experience) > 0.5
    advantage = torch.where(is_right, right, -wrong).double()
    return by_hand.token_loss(seen, advantage, kept=advantage != 0)


def gap(ours: Recipe, right: float, wrong: float) -> float:
    return probes.formula_gap(ours, probes.verified(), lambda seen: loss_by_hand(seen, right, wrong))


def unsampled(ours: Recipe, arm: int, reward: float) -> torch.Tensor:
    """Returns the steps of the logits of four arms after one sampled answer."""
    return -probes.bandit_grad(ours, torch.tensor([0.5, 0.3, 0.15, 0.05]).double().log(), arm, reward)


METHOD = Method(
    paper="arXiv:2506.01347",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"nsr-only": negative, "psr": positive},
    departures=(
        "no entropy bonus; the released scripts leave 0.001 on in every arm",
        "rows of the other kind are masked, so the number of updates does not depend on how many are right",
        "an outcome above 1/2 counts as right",
        "no claim with rank 16 on many-ways: pass@64 was 0.78 in both arms (5 pilot seeds); there pass rates differ",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: gap(recipe(), 0.1, 1.0), at_most=1e-9),
        Exact("that of wrong answers alone, over their own decisions", lambda: gap(negative(), 0.0, 1.0), at_most=1e-9),
        Exact("that of right answers alone, over their own decisions", lambda: gap(positive(), 1.0, 0.0), at_most=1e-9),
        Exact("a wrong answer raises every other logit by its probability", lambda: (
              unsampled(negative(), 0, 0.0) - torch.tensor([-0.5, 0.3, 0.15, 0.05])).abs().max(), at_most=1e-6),
        Exact("a right answer lowers every other logit", lambda: (
              unsampled(positive(), 1, 1.0) - torch.tensor([-0.5, 0.7, -0.15, -0.05])).abs().max(), at_most=1e-6),
        Measured("where contexts share parameters, wrong answers alone keep more of pass@64 than right ones alone",
                 "many-ways", negative(BIGRAMS).set("actor.rank", 4), positive(BIGRAMS).set("actor.rank", 4),
                 Final("pass@64"), seeds=10, minutes=6.0, steps=100, looks=2),
    ),
    mutants=(
        Edit("0 and 1 instead of signs", recipe, "Constant(0.5), Constant(0.5)", "Constant(0.0), Constant(1.0)"),
        Edit("weights change places", BySign.__call__, "self.positive, self.negative", "self.negative, self.positive"),
        Edit("dropped rows count in the mean", WithoutIdle.apply, "experience.mask & teaches", "experience.mask"),
    ),
)  # fmt: skip
