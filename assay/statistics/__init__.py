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

from assay.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
