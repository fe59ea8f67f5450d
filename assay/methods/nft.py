"""nft: maximum likelihood of correct answers, and of wrong ones under an implicit negative policy.

    right: loss = -w log rho;   wrong: loss = -w log((1 - r rho) / (1 - r));   w = sqrt((1 - r) / r)

Chen et al. 2025. r is the prompt's pass rate in its group. The behaviour policy is a mixture of a correct and a wrong
policy, so modelling the first models the second. On-policy the gradient is grpo's; off-policy nothing is clipped: a
wrong answer's gradient fades as it becomes less likely.

Axes: B sequences, T decisions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, Experience, Method, Preset, Recipe, RowStatistic, TrustRegion, groups, recipes
from assay.method import with_policy
from assay.parts import GroupMean, OutcomeCredit, PolicyGradient, bounded_ratio


@dataclass(frozen=True)
class PopulationDeviation(RowStatistic):
    """Standard deviation (n) of the group's outcomes: sqrt(r (1 - r)) for outcomes 0 and 1 with pass rate r.

    Without an epsilon, so that advantages are functions of r alone. Degenerate: 1 if outcomes are equal.
    """

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the group deviations, never 0."""
        by_group = groups.row_groups(experience)
        centred = outcome_B - groups.mean(outcome_B, by_group)
        deviation = groups.mean(centred.square(), by_group).sqrt()
        return torch.where(groups.differs(outcome_B, by_group) & (deviation > 0), deviation, 1.0)


LEAST_ODDS, MOST_ODDS = 1e-6, 1e6


def odds_of_scaled(size: Tensor) -> Tensor:
    """Returns A^2: a wrong answer's advantage is -sqrt(o) if outcomes 0 and 1 were centred and scaled."""
    return size.square()


def odds_of_centred(size: Tensor) -> Tensor:
    """Returns |A| / (1 - |A|), at most 50 |A|: a wrong answer's advantage is -r if outcomes 0 and 1 were centred
    alone.
    """
    return size / (1.0 - size.clamp(max=0.98))


@dataclass(frozen=True)
class NegativeAware(TrustRegion):
    """-A log rho where A > 0;  -(|A| / o) log max(1 + o (1 - rho), floor) where A < 0, with o = odds(|A|).

    The prompt's weight is in A: sqrt((1 - r) / r) with `odds_of_scaled`, 1 - r with `odds_of_centred`. The floor
    clips the value but not the gradient. `negative` scales the loss of wrong answers; 0 is rejection fine-tuning. At
    ratio one the gradient is REINFORCE's; as rho falls, a wrong answer's fades like rho / (1 + o (1 - rho)).
    Degenerate: A = 0 gives 0; outcomes other than 0 and 1 only change how fast it fades.
    """

    odds: Callable[[Tensor], Tensor] = odds_of_scaled
    floor: float = 1.0
    negative: float = 1.0
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"odds": odds_of_centred, "floor": 0.1},)

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss, wrong answers whose value the floor clipped; they keep their gradient)."""
        size = advantage.abs()
        odds = self.odds(size).clamp(LEAST_ODDS, MOST_ODDS)
        gain = odds * (1.0 - bounded_ratio(log_ratio))
        least = self.floor - 1.0
        held = gain.detach().clamp(min=least)
        # The value of the clipped logarithm with the slope of the plain one at the clipped point.
        log_negative = torch.log1p(held) + (gain - gain.detach()) / (1.0 + held)
        wrong = -self.negative * size / odds * log_negative
        return torch.where(advantage > 0, -advantage * log_ratio, wrong), (advantage < 0) & (gain.detach() < least)


def recipe(preset: Preset = LANGUAGE, negative: float = 1.0) -> Recipe:
    """Returns grpo with the likelihood of right answers and of wrong ones under an implicit policy."""
    base = replace(recipes.grpo(preset), credit=(OutcomeCredit(GroupMean(), PopulationDeviation()),))
    return with_policy(base, "nft", PolicyGradient(trust=NegativeAware(negative=negative)))


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
)
