"""Statistics of runs: a row for each arm and task, performance profiles, aggregates, probabilities of improvement.

    score          the last held-out score of a finished run; of an arm without one, those of its runs so far; that
                   after as many decisions in all runs, where their comparison reads it so
    row            mean over seeds with its 95 % interval; difference and probability of improvement over the first arm
    profile        share of runs at or above a threshold: by task, and over all tasks only if every range is known
    aggregates     mean, median, interquartile mean, optimality gap: by task in its own unit, over all tasks normalised

Scores of different tasks are put together only after they were normalised to 0 and 1, which needs the lowest and the
highest possible score of every task. Nothing is normalised by what was observed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from assay.report.arms import Absent, Plans, without_result
from assay.report.page_runs import Run
from assay.report.units import held_out, score_words
from assay.runs.answer import answer, clearest_task, pairs_of
from assay.runs.comparison import FEWEST_RUNS, RESAMPLES
from assay.runs.ranges import Range, known_range
from assay.statistics.aggregates import improvement_of, iqm_of, mean_of, median_of, optimality_gap_of
from assay.statistics.curves import performance_profile
from assay.statistics.intervals import Estimate, Values, difference_interval, inside, mean_interval, widths
from assay.statistics.scores import Resampling

THRESHOLDS, MOST_PAIRS = 61, 45
"""Points of a profile, and the most pairs of arms that get an interval."""
FEWEST_PAIRS = 5
"""With fewer seeds a bootstrap interval of a probability of improvement is too narrow to show."""
Scores: TypeAlias = "dict[str, dict[str, dict[int, float]]]"  # task -> arm -> seed -> score
ALL_TASKS = ""
"""The task of what is over all tasks."""


@dataclass(frozen=True)
class Results:
    """Runs with what a report needs besides them."""

    runs: Sequence[Run]
    absent: Sequence[Absent] = ()
    reasons: Mapping[tuple[str, str, int], str] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    decisions: Sequence[Mapping[str, Any]] = ()

    @property
    def tasks(self) -> list[str]:
        """Returns the tasks in order."""
        return list(dict.fromkeys([run.task for run in self.runs] + [one.task for one in self.absent]))

    @property
    def arms(self) -> list[str]:
        """Returns the arms in order."""
        return list(dict.fromkeys([run.arm for run in self.runs] + [one.arm for one in self.absent]))

    def of(self, arm: str, task: str) -> list[Run]:
        """Returns the runs of an arm on a task."""
        return [run for run in self.runs if (run.arm, run.task) == (arm, task)]

    def config(self, task: str) -> dict[str, Any]:
        """Returns the config of the first run on a task."""
        return next((run.config for run in self.runs if run.task == task), {})

    def scored(self, arm: str, task: str) -> list[Run]:
        """Returns the runs whose scores count: the finished ones, or all if none is finished."""
        mine = [run for run in self.of(arm, task) if run.score is not None]
        return [run for run in mine if run.state == "finished"] or mine


def results_of(runs: Sequence[Run], plans: Plans, given: Mapping[str, Range] | None = None) -> Results:
    """Returns the runs with what is absent and the known ranges of their tasks; `given` ranges take precedence."""
    ranges = {run.task: found for run in runs if (found := known_range(run.config)) is not None}
    reasons = {(one.arm, one.task, one.seed): one.reason for one in plans.absent if one.reason}
    return Results(runs, without_result(runs, plans), reasons, ranges | dict(given or {}), plans.decisions)


def compare_results(results: Results) -> dict[str, Any]:
    """Returns rows, profiles, aggregates and the improvement matrix as JSON."""
    scores = scores_of(results)
    pairs = pairs_of(scores, results.ranges)
    return {
        "answer": answer(pairs),
        "opens": clearest_task(pairs),
        "rows": [row(results, task, arm, scores[task]) for task in results.tasks for arm in scores[task]],
        "profiles": profiles(scores, results.ranges),
        "aggregates": aggregates(scores, results.ranges),
        "improvement": improvement(scores, results.arms),
        "units": {task: score_words(results.config(task)) for task in results.tasks},
        "held_out": {task: held_out(results.config(task)) for task in results.tasks},
        "levels": {run.task: run.level for run in results.runs if run.level is not None},
        "ranges": {task: list(ends) for task, ends in results.ranges.items() if task in results.tasks},
        "decisions": list(results.decisions),
        "paired": all(
            matched(ours, next(iter(arms.values())))[2] for arms in scores.values() for ours in arms.values()
        ),
    }


def scores_of(results: Results) -> Scores:
    """Returns the scores that count; of runs with one seed the last."""
    found: Scores = {}
    for task in results.tasks:
        arms = [arm for arm in results.arms if results.of(arm, task) or is_absent(results, arm, task)]
        found[task] = {
            arm: {run.seed: run.score for run in results.scored(arm, task) if run.score is not None} for arm in arms
        }
    return found


def is_absent(results: Results, arm: str, task: str) -> bool:
    """Returns whether a planned run of an arm on a task has no folder."""
    return any((one.arm, one.task) == (arm, task) for one in results.absent)


# ---------------------------------------------------------------------------------------------------- rows
def row(results: Results, task: str, arm: str, scores: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """Returns one row of the comparison table; difference and improvement are over the first arm of the task."""
    mine, first = results.of(arm, task), next(iter(scores))
    counted = results.scored(arm, task)
    values = [run.score for run in counted if run.score is not None]
    absent = [one for one in results.absent if (one.arm, one.task) == (arm, task)]
    stopped = [run for run in mine if run.state == "stopped"]
    failed = [
        {"run": run.label, "seed": run.seed, "reason": results.reasons.get((arm, task, run.seed), run.reason)}
        for run in stopped
    ] + [{"run": "", "seed": one.seed, "reason": one.reason} for one in absent if one.reason]
    a, b, is_paired = matched(scores[arm], scores[first])
    is_other = arm != first and bool(len(a) and len(b))
    limits = results.ranges.get(task) if len(values) > 1 else None  # one seed has no interval
    minus = difference_interval(a, b, paired=is_paired, binary=False)  # scores of runs are means, also where all are 1
    return {
        "arm": arm,
        "task": task,
        **ends(inside(mean_interval(values, binary=False), limits), "estimate"),
        "scores": values,
        "difference": ends(inside(minus, widths(limits))) if is_other else None,
        "improvement": ends(better(a, b, is_paired)) if is_other else None,
        "over": first,
        "seconds": average([run.seconds for run in counted]),
        "decisions": average([run.decisions for run in counted]),
        "steps": average([run.steps for run in mine]),
        "seeds": len(mine) + len(absent),
        "finished": sum(run.state == "finished" for run in mine),
        "running": sum(run.state == "running" for run in mine),
        "so_far": bool(counted) and counted[0].state != "finished",
        "failed": failed,
        "missing": sorted(one.seed for one in absent if not one.reason),
    }


def ends(estimate: Estimate, name: str = "value") -> dict[str, float | None]:
    """Returns an estimate as JSON: None for what is NaN or infinite."""
    three = {name: estimate.value, "low": estimate.low, "high": estimate.high}
    return {key: value if math.isfinite(value) else None for key, value in three.items()}


def average(values: Sequence[float | None]) -> float | None:
    """Returns the mean of the known values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def matched(ours: Mapping[int, float], theirs: Mapping[int, float]) -> tuple[Values, Values, bool]:
    """Returns the scores of two arms seed by seed on their common seeds, or all of both if they have none in common."""
    seeds = [seed for seed in ours if seed in theirs]
    if seeds:
        return np.array([ours[seed] for seed in seeds]), np.array([theirs[seed] for seed in seeds]), True
    return np.array(list(ours.values())), np.array(list(theirs.values())), False


def better(a: Values, b: Values, is_paired: bool) -> Estimate:
    """Estimates P(a run of a beats one of b), ties half, with a bootstrap interval if there are enough seeds."""
    if min(len(a), len(b)) < FEWEST_PAIRS:
        return Estimate(better_share(a, b), -math.inf, math.inf, len(a))
    how = Resampling(RESAMPLES, paired=is_paired)
    return how.estimates(improvement_of, [a.reshape(-1, 1), b.reshape(-1, 1)], (0.0, 1.0))[0]


# ---------------------------------------------------------------------------------------------------- profiles
def profiles(scores: Scores, ranges: Mapping[str, Range]) -> list[dict[str, Any]]:
    """Returns a profile of each task, and one over all tasks if there are several and every range is known."""
    found = [profile(task, arms, ranges.get(task)) for task, arms in scores.items() if any(arms.values())]
    tables = normalised(scores, ranges)
    if tables:
        thresholds = np.linspace(-0.01, 1.0, THRESHOLDS)
        arms = {}
        for arm, table in tables.items():
            shares = performance_profile(table, thresholds, resamples=RESAMPLES).estimates
            arms[arm] = [[round(getattr(each, name), 5) for each in shares] for name in ("value", "low", "high")]
        found.append({"task": ALL_TASKS, "thresholds": [round(x, 4) for x in thresholds], "arms": arms})
    return found


def profile(task: str, scores: Mapping[str, Mapping[int, float]], limits: Range | None) -> dict[str, Any]:
    """Computes the share of runs at or above each threshold inside the possible range, with Wilson's interval."""
    every = [value for values in scores.values() for value in values.values()]
    low, high = min(every), max(every)
    pad = (high - low) * 0.05 or abs(low) * 0.1 or 1.0
    least, most = (-math.inf, math.inf) if limits is None else limits
    ends = max(low - pad, min(low, least)), min(high + pad, max(high, most))
    thresholds = [float(f"{value:.6g}") for value in np.linspace(*ends, THRESHOLDS)]
    arms = {}
    for arm, values in scores.items():
        counts = {tau: sum(value >= tau for value in values.values()) for tau in thresholds if values}
        shares = {count: share(count, len(values)) for count in set(counts.values())}
        lines = [shares[counts[tau]] for tau in thresholds if values]
        arms[arm] = [[round(getattr(each, name), 5) for each in lines] for name in ("value", "low", "high")]
    return {"task": task, "thresholds": thresholds, "arms": {arm: lines for arm, lines in arms.items() if lines[0]}}


def share(count: int, total: int) -> Estimate:
    """Returns count of total with Wilson's interval."""
    return mean_interval([1.0] * count + [0.0] * (total - count), binary=True)


def normalised(scores: Scores, ranges: Mapping[str, Range]) -> dict[str, Values]:
    """Returns scores [seeds, tasks] of each arm between 0 and 1, on the seeds that it has on all tasks.

    Empty for one task, if a task has no known range, or if an arm has no seed on all tasks.
    """
    if len(scores) < 2 or any(task not in ranges for task in scores):
        return {}
    found = {}
    for arm in dict.fromkeys(arm for arms in scores.values() for arm in arms):
        each = [scores[task].get(arm, {}) for task in scores]
        seeds = [seed for seed in each[0] if all(seed in one for one in each)]
        if not seeds:
            return {}
        low, high = np.array([ranges[task] for task in scores]).T
        found[arm] = (np.array([[one[seed] for one in each] for seed in seeds]) - low) / (high - low)
    return found


# ---------------------------------------------------------------------------------------------------- aggregates
def aggregates(scores: Scores, ranges: Mapping[str, Range]) -> list[dict[str, Any]]:
    """Returns mean, median, interquartile mean and optimality gap of each arm: by task, and over all if normalised.

    By task the median is over runs; over tasks it is the median of the tasks' means. The gap is the mean distance below
    the highest possible score, None where that is not known. Intervals: expanded stratified bootstrap.
    """
    found = []
    for task, arms in scores.items():
        best = ranges[task][1] if task in ranges else None
        for arm, values in arms.items():
            if values:
                table = np.array(list(values.values())).reshape(-1, 1)
                found.append({"task": task, "arm": arm} | aggregate(table, best))
    for arm, table in normalised(scores, ranges).items():
        found.append({"task": ALL_TASKS, "arm": arm} | aggregate(table, 1.0))
    return found


def aggregate(scores_RK: Values, best: float | None) -> dict[str, Any]:
    """Computes the aggregates of one arm's scores [runs, tasks]."""

    def kernel(sample_RK: Values) -> Values:
        is_one = sample_RK.shape[-1] == 1
        middle = np.median(sample_RK, axis=(-2, -1)) if is_one else median_of(sample_RK)
        three = [mean_of(sample_RK), middle, iqm_of(sample_RK)]
        return np.stack([*three, *([] if best is None else [optimality_gap_of(sample_RK, best)])], axis=-1)

    if len(scores_RK) < FEWEST_RUNS:
        estimates = [Estimate(float(value), -math.inf, math.inf, 1) for value in kernel(scores_RK)]
    else:
        estimates = Resampling(RESAMPLES, method="expanded").estimates(kernel, [scores_RK])
    names = ("mean", "median", "iqm", "gap")
    return dict.fromkeys(names) | {name: ends(each) for name, each in zip(names, estimates, strict=False)}


# ---------------------------------------------------------------------------------------------------- improvement
def improvement(scores: Scores, arms: Sequence[str]) -> dict[str, Any]:
    """Computes P(row beats column), the mean over the tasks on which both have scores, with paired intervals where the
    two arms share seeds on all of those tasks.
    """
    size = len(arms)
    empty: list[list[float | None]] = [[None] * size for _ in arms]
    value, low, high = ([list(line) for line in empty] for _ in range(3))
    has_intervals = size * (size - 1) // 2 <= MOST_PAIRS
    for i, one in enumerate(arms):
        for j in range(i + 1, size):
            estimate = pair(scores, one, arms[j], has_intervals)
            if estimate is None:
                continue
            value[i][j], value[j][i] = estimate.value, 1 - estimate.value
            if estimate.count > 1:
                low[i][j], high[i][j] = estimate.low, estimate.high
                low[j][i], high[j][i] = 1 - estimate.high, 1 - estimate.low
    return {"arms": list(arms), "matrix": value, "low": low, "high": high}


def pair(scores: Scores, one: str, two: str, has_interval: bool) -> Estimate | None:
    """Estimates the probability that a run of `one` beats one of `two`; None if they share no task with scores."""
    both = [(arms[one], arms[two]) for arms in scores.values() if arms.get(one) and arms.get(two)]
    if not both:
        return None
    seeds = sorted(set.intersection(*(set(side) for sides in both for side in sides)))
    if has_interval and len(seeds) >= FEWEST_PAIRS:
        a, b = (np.array([[sides[which][seed] for sides in both] for seed in seeds]) for which in (0, 1))
        return Resampling(RESAMPLES, paired=True).estimates(improvement_of, [a, b], (0.0, 1.0))[0]
    each = [better_share(np.array(list(a.values())), np.array(list(b.values()))) for a, b in both]
    return Estimate(sum(each) / len(each), 0.0, 1.0, 1)


def better_share(a: Values, b: Values) -> float:
    """Computes the share of pairs in which `a` is larger, ties half."""
    return float(improvement_of(a.reshape(-1, 1), b.reshape(-1, 1)))
