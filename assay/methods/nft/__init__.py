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
from assay.claims import Edit, Exact, Final, Measured, Method, by_hand, probes
from assay.core.recipe import Recipe
from assay.methods.nft.credit import PopulationDeviation
from assay.methods.nft.objectives import NegativeAware
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.objectives.policy import PolicyGradient
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_policy

DATA = probes.sequences(num=24, spread=2.0)
SCORE = torch.tensor([1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0]).unsqueeze(1)
DATA = replace(DATA, reward=torch.where(DATA.mask, SCORE * (DATA.terminal | DATA.truncated), DATA.reward))
"""Six prompts; pass rates 1/4, 3/4 (scores -1 and 0), 1/2, all right, all wrong, and 2/3 where one row is empty."""


def recipe(world: Defaults = LANGUAGE, negative: float = 1.0) -> Recipe:
    base = replace(recipes.grpo(world), credit=(OutcomeCredit(GroupMean(), PopulationDeviation()),))
    return with_policy(base, "nft", PolicyGradient(trust=NegativeAware(negative=negative)))


def loss_by_hand(seen: probes.Seen, negative: float = 1.0) -> torch.Tensor:
    data, ratio = seen.experience, by_hand.ratio(seen)
    right = by_hand.in_groups(by_hand.outcome(data), data, lambda one: (one > one.mean()).double())
    rate = by_hand.in_groups(right, data, lambda one: one.mean().expand_as(one)).clamp(1e-9, 1 - 1e-9).unsqueeze(1)
    wrong = (1 - rate * ratio) / (1 - rate)
    # The logarithm of at least 1, with the slope of the plain logarithm at the clipped point.
    slope = negative * wrong / wrong.detach().clamp(min=1.0)
    gain = ((1 - rate) / rate).sqrt() * torch.where(right.unsqueeze(1) > 0, ratio.log(), slope)
    return -by_hand.mean_of_decisions(torch.where((rate > 0.01) & (rate < 0.99), gain, 0.0), data)


METHOD = Method(
    paper="arXiv:2505.18116",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"positives-only": partial(recipe, negative=0.0)},
    departures=(
        "the prompt's weight is sqrt((1 - r) / r), which is grpo's; the released script has 1 - r (odds_of_centred)",
        "prompts that are all right or all wrong have weight 0, where the released code samples them again",
        "outcomes that are not 0 or 1 keep grpo's advantage, from which the odds are read",
    ),
    claims=(
        Exact(
            "off-policy its gradient is the formula's",
            lambda: probes.formula_gap(recipe(), DATA, loss_by_hand),
            at_most=1e-9,
        ),
        Exact(
            "positives-only is the formula without wrong answers",
            lambda: probes.formula_gap(recipe(negative=0.0), DATA, partial(loss_by_hand, negative=0.0)),
            at_most=1e-9,
        ),
        Measured(
            "where prompts share parameters it is right more often than learning from right answers alone",
            "many-ways:rare=0", recipe(BIGRAMS), recipe(BIGRAMS, negative=0.0), Final("pass_rate"), seeds=5,
            minutes=10.0, steps=100, looks=4,
        ),
    ),
    mutants=(
        Edit("the floor cuts the gradient", NegativeAware.__call__,
             "torch.log1p(held) + (gain - gain.detach()) / (1.0 + held)", "torch.log1p(gain.clamp(min=least))"),
        Edit("grpo's loss for wrong answers", NegativeAware.__call__,
             "/ odds * log_negative", "* (1.0 - bounded_ratio(log_ratio))"),
        Edit("importance weights for right answers", NegativeAware.__call__,
             "-advantage * log_ratio", "-advantage * bounded_ratio(log_ratio)"),
        Edit("odds without a square", NegativeAware.__call__, "self.odds(size)", "size"),
    ),
)  # fmt: skip
