"""nft: maximum likelihood of correct answers, and of wrong ones under an implicit negative policy.

    right: loss = -w log rho;   wrong: loss = -w log((1 - r rho) / (1 - r));   w = sqrt((1 - r) / r)

Chen et al. 2025. r is the prompt's pass rate in its group. The behaviour policy is a mixture of a correct and a wrong
policy, so modelling the first models the second. On-policy the gradient is grpo's; off-policy nothing is clipped: a
wrong answer's gradient fades as it becomes less likely.
"""

from dataclasses import replace
from functools import partial

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.nft.credit import PopulationDeviation
from assay.methods.nft.objectives import NegativeAware
from assay.parts.credit.outcome import GroupDeviation, GroupMean, OutcomeCredit
from assay.parts.objectives.policy import PolicyGradient
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults
from assay.recipes.group import with_policy

LOGITS_A, MEMBERS = torch.tensor([0.4, -0.3]), 4
PULLS = probes.bandit_experience([0, 1, 1, 1, 0, 0, 0, 1], [1.0, 0, 0, 0, 1.0, 1.0, 1.0, 0], LOGITS_A, members=MEMBERS)
"""Two prompts with pass rates 1/4 and 3/4."""
MOVED = (LOGITS_A + torch.tensor([0.3, 0.0])).double().log_softmax(-1)[PULLS.action]


def recipe(world: Defaults = LANGUAGE, negative: float = 1.0) -> Recipe:
    base = replace(recipes.grpo(world), credit=(OutcomeCredit(GroupMean(), PopulationDeviation()),))
    return with_policy(base, "nft", PolicyGradient(trust=NegativeAware(negative=negative)))


def distance_from_grpo_on_policy() -> torch.Tensor:
    """Compares with grpo, up to grpo's deviation with n - 1 in place of n."""
    grpo = replace(recipes.grpo(), credit=(OutcomeCredit(GroupMean(), GroupDeviation(epsilon=0.0)),))
    ours, theirs = (probes.decision_weights(one, PULLS, PULLS.logp) for one in (recipe(), grpo))
    return (ours - theirs * (MEMBERS / (MEMBERS - 1)) ** 0.5).abs().max()


def distance_from_likelihood() -> torch.Tensor:
    """Compares with the slope of the formula above, prompt by prompt, where no value is clipped."""
    logp = MOVED.clone().requires_grad_()
    ratio, right = (logp - PULLS.logp).exp(), PULLS.reward
    rate = right.view(-1, MEMBERS).mean(1).repeat_interleave(MEMBERS).unsqueeze(1)
    wrong = ((1 - rate * ratio) / (1 - rate)).log()
    loss = -(((1 - rate) / rate).sqrt() * torch.where(right > 0, ratio.log(), wrong)).mean()
    (slope,) = torch.autograd.grad(loss, logp)
    fades = (right > 0) | (ratio < 1)
    return ((slope + probes.decision_weights(recipe(), PULLS, MOVED)) * fades).abs().max()


METHOD = Method(
    paper="arXiv:2505.18116",
    recipe=recipe,
    worlds=EVERY,
    default_task="countdown",
    family="policy gradient",
    base=recipes.grpo,
    variants={"positives-only": partial(recipe, negative=0.0)},
    departures=(
        "the prompt's weight is sqrt((1 - r) / r), which is grpo's; the released script has 1 - r (odds_of_centred)",
        "prompts that are all right or all wrong have weight 0, where the released code samples them again",
        "outcomes that are not 0 or 1 keep grpo's advantage, from which the odds are read",
    ),
    claims=(
        Exact("on-policy its gradient is grpo's", distance_from_grpo_on_policy, equals=0.0),
        Exact("off-policy its gradient is the formula's", distance_from_likelihood, equals=0.0),
        Measured(
            "scores higher than learning from right answers alone",
            "sorting-5", recipe(), recipe(negative=0.0), seeds=5, minutes=4.0, steps=100, warmup=60,
        ),
    ),
)  # fmt: skip
