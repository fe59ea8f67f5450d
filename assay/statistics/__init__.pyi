"""Statistics by name, and their homes."""

# ruff: noqa: I001
# fmt: off
from assay.statistics.aggregates import (
    iqm as iqm, mean as mean, median as median, optimality_gap as optimality_gap,
    probability_of_improvement as probability_of_improvement,
)
from assay.statistics.curves import performance_profile as performance_profile, sample_efficiency as sample_efficiency
from assay.statistics.datasets import (
    described as described, state_action_coverage as state_action_coverage, trajectory_quality as trajectory_quality,
)
from assay.statistics.demonstrations import Imitability as Imitability, imitability as imitability
from assay.statistics.intervals import (
    Estimate as Estimate, difference_interval as difference_interval, mean_interval as mean_interval,
)
from assay.statistics.passk import (
    coverage as coverage, crossover as crossover, majority_at_k as majority_at_k, majority_vote as majority_vote,
    pass_at_k as pass_at_k, pass_at_k_intervals as pass_at_k_intervals,
)
from assay.statistics.scores import bootstrap as bootstrap, compare as compare
from assay.statistics.search_space import Choice as Choice, Space as Space, Uniform as Uniform, Whole as Whole
from assay.statistics.sensitivity import (
    largest_shift as largest_shift, optimal_policy as optimal_policy, policy_shift as policy_shift,
)
from assay.statistics.sequential import SequentialTest as SequentialTest, decide as decide
from assay.statistics.tuning import (
    HyperbandSearch as HyperbandSearch, RandomSearch as RandomSearch, TuningPlan as TuningPlan, tune as tune,
)
