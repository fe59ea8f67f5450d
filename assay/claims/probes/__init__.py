"""Probes for exact claims: compute a recipe's loss and gradient without a run.

`loss` evaluates a recipe on given tensors, `gradient` on a given actor. On a bandit, or on sequences short enough to
enumerate, `expected_gradient` and `compare` give a recipe's expected gradient and variance without sampling.

Signs: a recipe's gradient is that of its loss (descent); an exact gradient is that of the expected reward (ascent).
`Bias` holds both as ascent.
"""

from assay.claims.probes import by_hand, classified
from assay.claims.probes.completions import (
    answered,
    completed,
    decoded_logp,
    labelled,
    listed,
    log_gap,
    mode_gap,
    reward_gap,
    rewarded,
    rewarded_in_turn,
    table_gap,
)
from assay.claims.probes.control import (
    GOAL_BOX,
    GOAL_CHOICE,
    box_fragments,
    goal_transitions,
    of_origins,
    recorded_near,
)
from assay.claims.probes.episodes import (
    AllEpisodes,
    bandit_episodes,
    bandit_experience,
    groups_with_right,
    one_sequence,
    outcomes,
    spelling,
    token_episodes,
)
from assay.claims.probes.estimators import (
    Bias,
    bandit_grad,
    bandit_gradient_of,
    compare,
    exact_bandit_gradient,
    exact_table_gradient,
    expected_gradient,
    expected_table_gradient,
    gradient_variance,
    table_of,
)
from assay.claims.probes.formulas import (
    BOX_SPEC,
    CHOICE_SPEC,
    TABLE_SPEC,
    Formula,
    Seen,
    formula_gap,
    fragments,
    sequences,
    source_gap,
    transitions,
    verified,
)
from assay.claims.probes.games import AllGames, all_games, exact_game_gradient, expected_game_gradient
from assay.claims.probes.gradients import Given, Witness, gradient, witness
from assay.claims.probes.greedy import greedy_gap
from assay.claims.probes.offline import drawn, foreign_rows
from assay.claims.probes.posterior import Posterior, divergence, posterior
from assay.claims.probes.preferences import preference_push
from assay.claims.probes.process import evaluate_table
from assay.claims.probes.refusals import is_refused
from assay.claims.probes.rollouts import Only, gathered, last_paid, small_policy, wrong_visits
from assay.claims.probes.safety import CostlyBandit, HandedOut, handed_out
from assay.claims.probes.schedules import hand_off_gap, handed_on, history, schedule_gap
from assay.claims.probes.search import beam_search
from assay.claims.probes.tensors import (
    Probe,
    advantages,
    auc,
    credited,
    decision_weights,
    derivative,
    distance,
    loss,
    slopes,
    worst,
)
from assay.claims.probes.training import at_posterior, distance_from_posterior, trained, trained_table
from assay.claims.probes.values import exact_values
from assay.claims.probes.uneven import ANY_OUTCOME, RIGHT_OR_WRONG, UNIT_OUTCOME, binary, graded, signed, templated

__all__ = [
    "ANY_OUTCOME",
    "BOX_SPEC",
    "CHOICE_SPEC",
    "GOAL_BOX",
    "GOAL_CHOICE",
    "RIGHT_OR_WRONG",
    "TABLE_SPEC",
    "UNIT_OUTCOME",
    "AllEpisodes",
    "AllGames",
    "Bias",
    "CostlyBandit",
    "Formula",
    "Given",
    "HandedOut",
    "Only",
    "Posterior",
    "Probe",
    "Seen",
    "Witness",
    "advantages",
    "all_games",
    "answered",
    "at_posterior",
    "auc",
    "bandit_episodes",
    "bandit_experience",
    "bandit_grad",
    "bandit_gradient_of",
    "beam_search",
    "binary",
    "box_fragments",
    "by_hand",
    "classified",
    "compare",
    "completed",
    "credited",
    "decision_weights",
    "decoded_logp",
    "derivative",
    "distance",
    "distance_from_posterior",
    "divergence",
    "drawn",
    "evaluate_table",
    "exact_bandit_gradient",
    "exact_game_gradient",
    "exact_table_gradient",
    "exact_values",
    "expected_game_gradient",
    "expected_gradient",
    "expected_table_gradient",
    "foreign_rows",
    "formula_gap",
    "fragments",
    "gathered",
    "goal_transitions",
    "graded",
    "gradient",
    "gradient_variance",
    "greedy_gap",
    "groups_with_right",
    "hand_off_gap",
    "handed_on",
    "handed_out",
    "history",
    "is_refused",
    "labelled",
    "last_paid",
    "listed",
    "log_gap",
    "loss",
    "mode_gap",
    "of_origins",
    "one_sequence",
    "outcomes",
    "posterior",
    "preference_push",
    "recorded_near",
    "reward_gap",
    "rewarded",
    "rewarded_in_turn",
    "schedule_gap",
    "sequences",
    "signed",
    "slopes",
    "small_policy",
    "source_gap",
    "spelling",
    "table_gap",
    "table_of",
    "templated",
    "token_episodes",
    "trained",
    "trained_table",
    "transitions",
    "verified",
    "witness",
    "worst",
    "wrong_visits",
]
