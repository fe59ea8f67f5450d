"""orpo: likelihood of the chosen completion plus a log-odds ratio against the rejected one; no reference.

    loss = mean over pairs of -m(chosen) - weight * log sigmoid(o(chosen) - o(rejected))
    m(y) = log pi(y) / |y|,   o(y) = m - log(1 - exp m)

Hong et al. 2024. Supervised training alone raises rejected completions of the same style with the chosen ones. The odds
ratio holds them down in the same step, so that no phase of supervised training comes before, and no reference.

Axes: B sequences, T decisions, G groups.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from assay.method import LANGUAGE, PREFERENCES, TABLE, Experience, Loss, Method, Need, Objective, Preset, Recipe, View
from assay.method import recipes, with_policy
from assay.parts import OverPairs, mean_logp, pair_totals, summed_over_pairs

MOST = -1e-6
"""Largest mean log-probability: the odds of a certain completion are infinite."""


def log_odds(mean: Tensor) -> Tensor:
    """Returns log(p / (1 - p)) of p = exp(mean), which is at most 1."""
    bounded = mean.clamp(max=MOST)
    return bounded - torch.log(-torch.expm1(bounded))


@dataclass(frozen=True)
class OddsRatio(OverPairs, Objective):
    """-m(chosen) - weight * log sigmoid(o(chosen) - o(rejected)), o = log-odds of the mean m (arXiv:2403.07691, eq. 6).

    Degenerate: no pair gives sum 0 and count 0; a completion that is
    certain has the odds of probability 1 - 1e-6, without a gradient.
    """

    weight: float = 0.1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})

    def __call__(self, batch: Experience, view: View) -> Loss:
        chosen, rejected, is_pair = pair_totals(batch, mean_logp(batch, view.scored.logp))
        margin = log_odds(chosen) - log_odds(rejected)
        return summed_over_pairs(-chosen - self.weight * logsigmoid(margin), margin, is_pair)


def recipe(preset: Preset = LANGUAGE, weight: float = 0.1) -> Recipe:
    """Returns dpo with likelihood and odds ratio in place of log-ratios, and without the reference."""
    return replace(with_policy(recipes.dpo(preset), "orpo", OddsRatio(weight)), copies={})


METHOD = Method(
    paper="arXiv:2403.07691",
    recipe=recipe,
    presets=(LANGUAGE, TABLE, PREFERENCES),
    family="preference",
    base=recipes.dpo,
    departures=(
        "pairs are sampled from the current policy at every step unless a file of pairs is the task",
        "the likelihood is a mean over each chosen completion, as in the paper; TRL takes it over the batch's tokens",
    ),
    results=(
        "undecided after 20 seeds: +0.006 of a mean pass rate of 0.68, more on 15 of them; an effect above 0.016 is "
        "excluded on this testbed",
    ),
)
