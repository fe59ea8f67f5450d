"""How often the stratified bootstrap's 95 % interval of the IQM holds the true IQM, by simulation.

    python -m benchmarks.coverage                        the table of docs/statistics.md, some minutes on one core
    python -m benchmarks.coverage --experiments 200      a look

The truth is the IQM of infinitely many runs on the same tasks. Task k of K is centred at the normal quantile of
(k + 1/2) / K; around it runs scatter by half a unit, in three ways: normal, skewed (exponential), and failing (normal,
but one run in five ends two units lower).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from assay.statistics.aggregates import iqm, iqm_of
from assay.statistics.scores import Resampling

Floats = NDArray[np.float64]
RUNS, TASKS, METHODS = (3, 5, 10), (1, 5, 26), ("percentile", "expanded")
GRID = (np.arange(20_000) + 0.5) / 20_000  # quantiles that stand for infinitely many runs


def normal(prob: Floats) -> Floats:
    """Quantiles of a standard normal."""
    inside = np.clip(prob, 1e-12, 1 - 1e-12).ravel()
    return np.asarray([NormalDist().inv_cdf(float(each)) for each in inside]).reshape(prob.shape)


def skewed(prob: Floats) -> Floats:
    """Quantiles of an exponential with mean 0 and deviation 1."""
    return -np.log1p(-prob) - 1


def failing(prob: Floats) -> Floats:
    """Normal runs, but the lowest fifth of `prob` stands for runs that end four deviations lower."""
    is_failed = prob < 0.2
    return normal(np.where(is_failed, prob / 0.2, (prob - 0.2) / 0.8)) - 4 * is_failed


POPULATIONS: dict[str, Callable[[Floats], Floats]] = {"normal": normal, "skewed": skewed, "failing": failing}


def coverage(shape: Callable[[Floats], Floats], runs: int, tasks: int, experiments: int, resamples: int) -> list[float]:
    """The share of experiments whose interval holds the true IQM, for each method."""
    centre_K = normal((np.arange(tasks) + 0.5) / tasks)
    truth = iqm(centre_K + 0.5 * shape(GRID)[:, None])
    generator = np.random.default_rng([runs, tasks])
    scores_ERK = centre_K + 0.5 * shape(generator.random((experiments, runs, tasks)))
    held = np.zeros(len(METHODS))
    for seed, scores_RK in enumerate(scores_ERK):
        hows = [Resampling(resamples, seed=seed, method=method) for method in METHODS]
        replicates = hows[0].replicates(iqm_of, [scores_RK])
        for place, how in enumerate(hows):
            low, high = np.quantile(replicates, how.tails([scores_RK]))
            held[place] += low <= truth <= high
    return list(held / experiments)


def main() -> None:
    """Prints the table, a line for each number of runs and tasks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__.split("\n")[0])
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=1000)
    options = parser.parse_args()
    error = 100 * math.sqrt(0.95 * 0.05 / options.experiments)
    print(f"coverage in %, nominal 95, {options.experiments} experiments a cell (standard error {error:.1f} at 95)")
    print("| runs | tasks | " + " | ".join(f"{method}, {name}" for name in POPULATIONS for method in METHODS) + " |")
    print("|---" * (2 + len(POPULATIONS) * len(METHODS)) + "|")
    for runs in RUNS:
        for tasks in TASKS:
            size = (runs, tasks, options.experiments, options.resamples)
            shares = [share for shape in POPULATIONS.values() for share in coverage(shape, *size)]
            print(f"| {runs} | {tasks} | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |", flush=True)


if __name__ == "__main__":
    main()
