"""Instruments for exact statements: what a recipe's loss and gradient are, without a run.

`loss` evaluates a recipe on given tensors, `gradient` on a given actor. On a bandit, or on sequences short enough to be
listed, `expected_gradient` and `compare` give a recipe's expected gradient and variance by enumeration, no sampling.

Signs: what belongs to a recipe is the gradient of its loss (descend); what is called exact is the gradient of the
expected reward (ascend). `Bias` holds both as ascent.
"""

from assay.probes.boosting import best_split_error, grown, leaf_means_one_by_one
from assay.probes.episodes import AllEpisodes, bandit_episodes, bandit_experience, spelling, token_episodes
from assay.probes.estimators import (
    Bias,
    bandit_grad,
    compare,
    exact_bandit_gradient,
    exact_table_gradient,
    expected_gradient,
    expected_table_gradient,
    gradient_variance,
    table_of,
)
from assay.probes.games import AllGames, all_games, exact_game_gradient, expected_game_gradient
from assay.probes.gradients import Given, Witness, gradient, witness
from assay.probes.posterior import Posterior, divergence, posterior
from assay.probes.preferences import preference_push
from assay.probes.process import evaluate_table
from assay.probes.safety import CostlyBandit, HandedOut, handed_out
from assay.probes.search import beam_search
from assay.probes.tensors import Probe, credited, decision_weights, loss
from assay.probes.training import distance_from_posterior, trained_table
from assay.probes.values import exact_values

__all__ = [
    "AllEpisodes",
    "AllGames",
    "Bias",
    "CostlyBandit",
    "Given",
    "HandedOut",
    "Posterior",
    "Probe",
    "Witness",
    "all_games",
    "bandit_episodes",
    "bandit_experience",
    "bandit_grad",
    "beam_search",
    "best_split_error",
    "compare",
    "credited",
    "decision_weights",
    "distance_from_posterior",
    "divergence",
    "evaluate_table",
    "exact_bandit_gradient",
    "exact_game_gradient",
    "exact_table_gradient",
    "exact_values",
    "expected_game_gradient",
    "expected_gradient",
    "expected_table_gradient",
    "gradient",
    "gradient_variance",
    "grown",
    "handed_out",
    "leaf_means_one_by_one",
    "loss",
    "posterior",
    "preference_push",
    "spelling",
    "table_of",
    "token_episodes",
    "trained_table",
    "witness",
]
