"""Statistics of runs, on plain arrays: usable without any training.

Scores are arrays [runs, tasks]; a vector is the runs of one task. Results are floats, or small frozen records whose
numbers are `Estimate`s: a value with a confidence interval and the count behind it.

    scores, curves     aggregates, stratified bootstrap, P(improvement), performance profiles, sample efficiency
    intervals          means and differences of means
    sequential         how many seeds are enough (AdaStop)
    passk              pass@k, majority vote, coverage, crossover
    trials             blind randomised paired trials with exact tests
    datasets           quality and coverage of offline datasets
    demonstrations     how well a dataset can be cloned
    tuning             search on some seeds, report on fresh ones
    sensitivity        how far a change of the reward moves the optimal policy
"""

from assay.statistics.aggregates import iqm, mean, median, optimality_gap, probability_of_improvement
from assay.statistics.curves import performance_profile, sample_efficiency
from assay.statistics.datasets import described, state_action_coverage, trajectory_quality
from assay.statistics.demonstrations import Imitability, imitability
from assay.statistics.intervals import Estimate, difference_interval, mean_interval
from assay.statistics.passk import coverage, crossover, majority_at_k, majority_vote, pass_at_k, pass_at_k_intervals
from assay.statistics.scores import bootstrap, compare
from assay.statistics.search_space import Choice, Space, Uniform, Whole
from assay.statistics.sensitivity import largest_shift, optimal_policy, policy_shift
from assay.statistics.sequential import SequentialTest, decide
from assay.statistics.tuning import HyperbandSearch, RandomSearch, TuningPlan, tune

__all__ = [
    "Choice",
    "Estimate",
    "HyperbandSearch",
    "Imitability",
    "RandomSearch",
    "SequentialTest",
    "Space",
    "TuningPlan",
    "Uniform",
    "Whole",
    "bootstrap",
    "compare",
    "coverage",
    "crossover",
    "decide",
    "described",
    "difference_interval",
    "imitability",
    "iqm",
    "largest_shift",
    "majority_at_k",
    "majority_vote",
    "mean",
    "mean_interval",
    "median",
    "optimal_policy",
    "optimality_gap",
    "pass_at_k",
    "pass_at_k_intervals",
    "performance_profile",
    "policy_shift",
    "probability_of_improvement",
    "sample_efficiency",
    "state_action_coverage",
    "trajectory_quality",
    "tune",
]
