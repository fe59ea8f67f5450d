"""Compares methods: every arm on the same tasks and the same seeds, with statistics of the scores.

    score      the last held-out score of a run; or with equal_decisions that where it had taken as many decisions as
               the shortest run of the task, linear between two evaluations
    paired     seed k of all arms shares its starts and its random numbers, so arms are compared seed by seed
    auto       the sequential test of `statistics.sequential` adds seeds until every pair of arms is decided

Failed runs stay in the table. A seed that failed in one arm is left out of the paired statistics of that task.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from assay.core import store
from assay.core.errors import AssayError
from assay.engine.machine import describe_machine
from assay.runs.answer import Pair, answer, pairs_of
from assay.runs.arms import Setup
from assay.runs.code import code_of, modules_of
from assay.runs.config import read_config
from assay.runs.jobs import Failure, Result, run_jobs
from assay.runs.notebook import html_table, mean_curve, svg_curves, text_table
from assay.runs.pools import Child, Job
from assay.runs.ranges import Range, known_range
from assay.statistics.aggregates import iqm, iqm_of, probability_of_improvement
from assay.statistics.curves import value_where
from assay.statistics.intervals import Estimate, difference_interval, inside, mean_interval, widths
from assay.statistics.scores import Resampling
from assay.statistics.scores import bootstrap as bootstrapped
from assay.statistics.sequential import Decision, decide

FEWEST_RUNS, RESAMPLES = 3, 2000
"""With fewer seeds a bootstrap interval of an aggregate is too narrow to show; resamples of one, as on the page."""


@dataclass
class Outcome:
    """The results of a comparison so far."""

    setup: Setup
    results: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    asked: list[Job] = field(default_factory=list)
    decision: Decision | None = None

    def add(self, one: Result | Failure) -> None:
        """Adds the outcome of a run."""
        if isinstance(one, Result):
            self.results.append(one)
        else:
            self.failures.append(one)

    def of(self, arm: str, task: str | None = None) -> list[Result]:
        """Returns an arm's results, by seed."""
        found = [one for one in self.results if one.job.arm == arm and task in (None, one.job.task)]
        levels = self.levels
        read = [one if one.job.task not in levels else read_at(one, levels[one.job.task]) for one in found]
        return sorted(read, key=lambda one: one.job.seed)

    @property
    def levels(self) -> dict[str, int]:
        """Returns the decisions at which the scores of each task are read; empty if those are the last ones."""
        found: dict[str, int] = {}
        for one in self.results if self.setup.equal_decisions else ():
            found[one.job.task] = min(one.decisions, found.get(one.job.task, one.decisions))
        return found

    @property
    def missing(self) -> list[Job]:
        """Returns the planned runs that neither finished nor failed."""
        over = {one.job for one in self.results} | {one.job for one in self.failures}
        return [job for job in self.asked if job not in over]

    def common_seeds(self, arms: Iterable[str]) -> list[int]:
        """Returns seeds that all these arms have finished on all tasks."""
        sets = [{one.job.seed for one in self.of(arm, task)} for arm in arms for task in self.setup.tasks]
        return sorted(set.intersection(*sets)) if sets else []

    @property
    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Returns the table of arms and tasks: its headings and its rows."""
        shown = []
        for row in rows(self):
            gained = "" if row["difference"] is None else str(Estimate(**row["difference"]))
            shown.append([row["arm"], row["task"], str(Estimate(**row["score"])), gained, str(row["seeds"])])
        return ["arm", "task", "held-out score", f"minus {self.setup.arms[0].name}, paired", "seeds"], shown

    def __repr__(self) -> str:
        """Returns the table as text."""
        return text_table(*self.shown)

    def _repr_html_(self) -> str:
        """Returns the table of arms and tasks, and their curves, for a notebook."""
        table = html_table(*self.shown)
        figures = []
        for task in self.setup.tasks:
            found = {arm.name: self.of(arm.name, task) for arm in self.setup.arms}
            curves = {name: mean_curve([one.curves for one in runs]) for name, runs in found.items() if runs}
            figures.append(svg_curves(curves, f"held-out score on {task}, mean over seeds"))
        return table + "".join(figures)

    def table(self, arm: str, seeds: Sequence[int]) -> np.ndarray:
        """Returns scores [seeds, tasks]."""
        by_place = {(one.job.seed, one.job.task): one.score for one in self.of(arm)}
        return np.array([[by_place[seed, task] for task in self.setup.tasks] for seed in seeds], dtype=np.float64)


def read_at(one: Result, level: int) -> Result:
    """Returns the result with the score that the run had after this many decisions."""
    lines = [row for row in one.curves if row.get("evaluation") is not None]
    path = [row.get("decisions_total", 0) for row in lines]
    return replace(one, score=value_where(path, [row["evaluation"] for row in lines], level))


# ---------------------------------------------------------------------------------------------------- running
def run(setup: Setup, watch: Callable[[Outcome, Sequence[Child]], None] = lambda outcome, running: None) -> Outcome:
    """Runs what is missing and reads what is finished. `watch` is called at every result and during the runs."""
    setup.check()
    check_code(setup)
    outcome = Outcome(setup)
    deadline = None if setup.minutes is None else time.monotonic() + 60 * setup.minutes
    numbers = {arm.name: setup.seeds or setup.test.size for arm in setup.arms}
    while any(numbers.values()):
        jobs = [
            setup.job(arm, task, seed)
            for seed in range(max(numbers.values()))
            for arm in setup.arms
            for task in setup.tasks
            if seed < numbers[arm.name] and not known(outcome, arm.name, task, seed)
        ]
        if not jobs or (deadline is not None and time.monotonic() > deadline):
            break
        outcome.asked += jobs
        tell = partial(watch, outcome)
        for one in run_jobs(jobs, setup.workers, pool=setup.pool, deadline=deadline, watch=tell):
            outcome.add(one)
            watch(outcome, ())
        if setup.seeds is not None or outcome.failures or outcome.missing:
            break
        outcome.decision = decide(setup.test, single_scores(outcome))
        for arm, more in outcome.decision.needs.items():
            numbers[arm] += more
    store.write_json(setup.folder / "comparison.json", facts(outcome))
    return outcome


def check_code(setup: Setup) -> None:
    """Refuses to resume a comparison with other code than it was started with: its runs would not be comparable."""
    plans = [setup.job(arm, task, 0).plan() for arm in setup.arms for task in setup.tasks]
    modules = set().union(*(modules_of(plan.recipe) | modules_of(plan.task) for plan in plans))
    code, path = code_of(modules), setup.folder / "code.json"
    before = json.loads(path.read_text()) if path.is_file() else {}
    changed = [module for module, digest in code.items() if before.get(module, digest) != digest]
    if changed:
        raise AssayError(
            f"{setup.folder} was started with other code ({', '.join(changed[:3])}). Choose another --out."
        )
    store.write_json(path, before | code)


def known(outcome: Outcome, arm: str, task: str, seed: int) -> bool:
    """Returns whether this run is planned already."""
    return any((job.arm, job.task, job.seed) == (arm, task, seed) for job in outcome.asked)


def single_scores(outcome: Outcome) -> dict[str, list[float]]:
    """Returns one number per seed for the sequential test: the score, or the mean over tasks all scored in [0, 1]."""
    tables = {}
    for arm in outcome.setup.arms:
        count = len(outcome.of(arm.name)) // len(outcome.setup.tasks)
        tables[arm.name] = outcome.table(arm.name, range(count))
    if len(outcome.setup.tasks) > 1 and not all(((each >= 0) & (each <= 1)).all() for each in tables.values()):
        raise AssayError(
            "--seeds auto with several tasks needs scores between 0 and 1 on all of them. Compare on one task, or "
            "give a number of seeds."
        )
    return {arm: each.mean(1).tolist() for arm, each in tables.items()}


# ---------------------------------------------------------------------------------------------------- statistics
def rows(outcome: Outcome) -> list[dict[str, Any]]:
    """Returns one row per arm and task: estimate, paired difference from the first arm, P(improvement), cost."""
    first = outcome.setup.arms[0].name
    found = []
    for task in outcome.setup.tasks:
        for arm in outcome.setup.arms:
            mine = outcome.of(arm.name, task)
            theirs = {one.job.seed: one.score for one in outcome.of(first, task)}
            pairs = [(one.score, theirs[one.job.seed]) for one in mine if one.job.seed in theirs]
            a, b = np.array(pairs).reshape(-1, 2).T
            is_other = arm.name != first and len(pairs) > 0
            limits = score_range(mine) if len(mine) > 1 else None  # one seed has no interval
            minus = difference_interval(a, b, paired=True, binary=False) if is_other else None
            gained = None if minus is None else inside(minus, widths(limits))
            found.append(
                {
                    "arm": arm.name,
                    "task": task,
                    "seeds": len(mine),
                    "failed": sum(one.job.arm == arm.name and one.job.task == task for one in outcome.failures),
                    "score": vars(inside(mean_interval([one.score for one in mine], binary=False), limits)),
                    "difference": None if gained is None else vars(gained),
                    "improvement": vars(improvement(a, b)) if is_other else None,
                    "seconds": float(np.mean([one.seconds for one in mine])) if mine else None,
                    "decisions": float(np.mean([one.decisions for one in mine])) if mine else None,
                }
            )
    return found


def compared_pairs(outcome: Outcome) -> list[Pair]:
    """Returns every pair of arms on every task, the clearest first."""
    setup = outcome.setup
    found = {task: {arm.name: outcome.of(arm.name, task) for arm in setup.arms} for task in setup.tasks}
    scores = {
        task: {arm: {one.job.seed: one.score for one in some} for arm, some in arms.items()}
        for task, arms in found.items()
    }
    ranges = {task: score_range(one for some in arms.values() for one in some) for task, arms in found.items()}
    return pairs_of(scores, {task: ends for task, ends in ranges.items() if ends is not None})


def score_range(found: Iterable[Result]) -> Range | None:
    """Returns the range of the runs' scores, if their config.json determines it."""
    paths = (one.job.folder / "config.json" for one in found)
    return next((known_range(read_config(path)) for path in paths if path.is_file()), None)


def improvement(a: np.ndarray, b: np.ndarray) -> Estimate:
    """Estimates P(a run of a beats one of b), ties half, with a paired bootstrap interval."""
    if len(a) < 2:
        return Estimate(probability_of_improvement(a, b), 0.0, 1.0, len(a))
    return bootstrapped(probability_of_improvement, a, b, paired=True)


def aggregate(outcome: Outcome) -> list[dict[str, Any]]:
    """Aggregates over several tasks: P(improvement) over the first arm, which needs no common scale, and, as on the
    page, the interquartile mean of scores as shares of their possible range, if that of every task is known. Empty for
    one task, or without a seed that all arms finished.
    """
    names = [arm.name for arm in outcome.setup.arms]
    seeds = outcome.common_seeds(names)
    if len(outcome.setup.tasks) < 2 or not seeds:
        return []
    tables = {name: outcome.table(name, seeds) for name in names}
    ranges = [score_range(one for one in outcome.results if one.job.task == task) for task in outcome.setup.tasks]
    known = [found for found in ranges if found is not None]
    pools, several = len(known) == len(ranges), len(seeds) >= FEWEST_RUNS
    low, high = np.array(known).reshape(-1, 2).T if pools else (0.0, 1.0)
    found = []
    for name, table in tables.items():
        is_other = name != names[0]
        shares = (table - low) / (high - low)
        middle = Estimate(iqm(shares), -np.inf, np.inf, 1)
        if several:
            middle = inside(Resampling(RESAMPLES, method="expanded").estimates(iqm_of, [shares])[0], (0.0, 1.0))
        better = improvement(table, tables[names[0]]) if is_other else None
        found.append(
            {
                "arm": name,
                "seeds": len(seeds),
                "iqm": vars(middle) if pools else None,
                "improvement": None if better is None else vars(better),
            }
        )
    return found


def facts(outcome: Outcome) -> dict[str, Any]:
    """Returns the whole comparison as JSON: comparison.json."""
    setup = outcome.setup
    return {
        "arms": [{"name": arm.name, "settings": {k: str(v) for k, v in arm.settings.items()}} for arm in setup.arms],
        "tasks": list(setup.tasks),
        "levels": outcome.levels,
        "answer": answer(compared_pairs(outcome)),
        "rows": rows(outcome),
        "aggregate": aggregate(outcome),
        "decision": None if outcome.decision is None else decided(outcome.decision),
        "runs": [
            {
                "arm": one.job.arm, "task": one.job.task, "seed": one.job.seed, "score": one.score,
                "seconds": one.seconds, "decisions": one.decisions, "folder": str(one.job.folder),
            }
            for task in sorted(setup.tasks) for arm in sorted(arm.name for arm in setup.arms)
            for one in outcome.of(arm, task)
        ],
        "failures": [vars_of(one.job) | {"reason": one.reason} for one in outcome.failures],
        "missing": [vars_of(job) for job in outcome.missing],
        "machine": describe_machine(),
    }  # fmt: skip


def vars_of(job: Job) -> dict[str, Any]:
    """Returns arm, task and seed of a run."""
    return {"arm": job.arm, "task": job.task, "seed": job.seed, "folder": str(job.folder)}


def decided(decision: Decision) -> list[dict[str, Any]]:
    """Returns the sequential test's verdict on each pair."""
    return [
        {"first": each.first, "second": each.second, "verdict": each.verdict.value, "interim": each.interim}
        for each in decision.comparisons
    ]
