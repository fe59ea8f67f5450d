"""Settings tuned on one set of seeds and reported on another, with the tuning budget stated.

    chosen    = argmax over trials of the mean score on the tuning seeds at full budget
    reported  = mean score of the chosen settings on the reporting seeds, which no search has seen
    optimism  = tuning score of the chosen settings - reported: the selection bias

Source: Eimer, Lindauer & Raileanu 2023, arXiv:2306.01324. Random search draws settings independently; the Hyperband
search (Li et al. 2018, arXiv:1603.06560; through Optuna) tries settings on a share of the budget first and gives the
whole of it only to the better ones. Assumes that larger scores are better and that seeds are exchangeable.

A run is one call of the objective: `objective(settings, seed, budget_fraction, report) -> score`, where it may call
`report(fraction, score)` on its way; reports are kept in the journal. A score of nan or infinity is a failed run: its
trial is never chosen. Every finished run is one line of the journal, and a search is a function of its plan and the
scores, so a search that was killed is repeated from the start with the answers of the journal: no finished run is run
again, and the end is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Draw
from assay.ops import random
from assay.statistics.intervals import Estimate, difference_interval, mean_interval
from assay.statistics.search_space import Settings, Space
from assay.statistics.tuning_journal import Journal, Objective, key_of

Scorer: TypeAlias = Callable[[Settings, float], float]
Asked: TypeAlias = tuple[Settings, int, float]


# ---------------------------------------------------------------------------------------------------- plan and result
@dataclass(frozen=True)
class TuningPlan:
    """Fixed before the first run: trials of the search, seeds for tuning and for reporting, steps of one full run."""

    trials: int
    tuning_seeds: tuple[int, ...]
    reporting_seeds: tuple[int, ...]
    steps_per_run: int
    seed: int = 0

    def __post_init__(self) -> None:
        for name, count in (("trials", self.trials), ("steps_per_run", self.steps_per_run)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise AssayError(f"{name} must be a whole number of at least 1, got {count!r}")
        for name, seeds in (("tuning_seeds", self.tuning_seeds), ("reporting_seeds", self.reporting_seeds)):
            if not seeds:
                raise AssayError(f"{name} must hold at least one seed, got none: three or more are usual")
            if len(set(seeds)) != len(seeds):
                raise AssayError(f"{name} must differ from each other, got {list(seeds)}: name each seed once")
        if shared := sorted(set(self.tuning_seeds) & set(self.reporting_seeds)):
            raise AssayError(
                f"reporting_seeds must not be tuned on, got {shared} in both: choose other seeds to report"
            )


@dataclass(frozen=True)
class Trial:
    """One set of settings: the largest share of the budget it was given, and its mean tuning score there."""

    number: int
    settings: Settings
    fraction: float
    score: float


@dataclass(frozen=True)
class Tuned:
    """The outcome. Budgets count every run of the search, on shares of the budget too; equal runs count once."""

    settings: Settings
    trials: tuple[Trial, ...]
    plan: TuningPlan
    tuning_runs: int
    tuning_steps: int
    tuning: Estimate
    reported: Estimate
    optimism: Estimate

    def __str__(self) -> str:
        return (
            f"{self.reported} on {len(self.plan.reporting_seeds)} fresh seeds, after tuning {len(self.trials)} trials "
            f"in {self.tuning_runs} runs and {self.tuning_steps} steps (optimism {self.optimism})"
        )

    def __repr__(self) -> str:
        """Returns the score on fresh seeds and the chosen settings."""
        return f"{self}\n{dict(self.settings)}"

    def _repr_html_(self) -> str:
        """Returns the score on fresh seeds and the chosen settings, for a notebook."""
        return f"<p>{escape(str(self))}</p><p>{escape(str(dict(self.settings)))}</p>"


# ---------------------------------------------------------------------------------------------------- searches
class Search(Protocol):
    """Tries settings. `score(settings, fraction)` is the mean over the tuning seeds, -inf for a failure."""

    def trials(self, space: Space, plan: TuningPlan, score: Scorer) -> list[Trial]:
        """Returns all trials of the plan, as a function of the plan and the scores alone."""

    def foreseen(self, space: Space, plan: TuningPlan) -> list[Settings]:
        """Returns the settings that it will try at full budget whatever the scores; they may run in parallel."""


@dataclass(frozen=True)
class RandomSearch:
    """Independent draws, each at full budget (Bergstra & Bengio 2012)."""

    def trials(self, space: Space, plan: TuningPlan, score: Scorer) -> list[Trial]:
        """Draws trial i by a hash of the plan's seed and i, so a longer search starts with the same trials."""
        return [Trial(number, each, 1.0, score(each, 1.0)) for number, each in enumerate(self.foreseen(space, plan))]

    def foreseen(self, space: Space, plan: TuningPlan) -> list[Settings]:
        """Returns all draws."""
        return [space.sample(Draw(plan.seed, (number,))) for number in range(plan.trials)]


@dataclass(frozen=True)
class HyperbandSearch:
    """Optuna's Hyperband: shares 1 / factor^(rungs - 1), ..., 1 / factor, 1; a trial continues while among the best.

    A higher budget is a new run from the start, and all of it is counted. Settings come from Optuna's tree of Parzen
    estimators, whose seed is a hash of the plan's seed and the trial.
    """

    rungs: int = 3
    factor: int = 3

    def __post_init__(self) -> None:
        if self.rungs < 1 or self.factor < 2:
            raise AssayError(f"rungs must be at least 1 and factor at least 2, got {self.rungs} and {self.factor}")

    def trials(self, space: Space, plan: TuningPlan, score: Scorer) -> list[Trial]:
        """Asks Optuna, trial by trial; the study is in memory and rebuilt on resume."""
        optuna = require("optuna", "scale", "the Hyperband search")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        most = self.factor ** (self.rungs - 1)
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=most, reduction_factor=self.factor)
        study = optuna.create_study(direction="maximize", pruner=pruner, study_name="assay")
        done = []
        for number in range(plan.trials):
            seed = int(random.hashed(Draw(plan.seed, (number,))) >> np.uint64(32))
            study.sampler = optuna.samplers.TPESampler(seed=seed)
            asked = study.ask()
            settings = {name: each.asked(name, asked) for name, each in space.settings.items()}
            for resource in (self.factor**rung for rung in range(self.rungs)):
                value = score(settings, resource / most)
                asked.report(max(value, -1e300), resource)
                if resource == most or asked.should_prune():
                    break
            done.append(Trial(number, settings, resource / most, value))
            if resource == most:
                study.tell(asked, max(value, -1e300))
            else:
                study.tell(asked, state=optuna.trial.TrialState.PRUNED)
        return done

    def foreseen(self, space: Space, plan: TuningPlan) -> list[Settings]:
        """Returns no settings: each depends on the scores before it."""
        return []


# ---------------------------------------------------------------------------------------------------- tuning
def tune(
    space: Space,
    objective: Objective,
    plan: TuningPlan,
    *,
    search: Search = RandomSearch(),
    journal: Path | None = None,
    level: float = 0.95,
    ahead: Callable[[Sequence[Asked]], None] = lambda runs: None,
) -> Tuned:
    """Searches on the tuning seeds, then runs the chosen settings on the reporting seeds.

    `ahead` gets runs that the journal lacks before the objective is called for each, and may run them in parallel.

    Ties go to the earlier trial. One seed gives a mean without an interval (the whole line). Failed runs on reporting
    seeds are an error, since leaving them out would bias the score.
    """
    log = Journal(journal, repr((space, plan, search)))
    spent: dict[str, float] = {}

    def foresee(drawn: Sequence[Settings], seeds: Sequence[int], fraction: float) -> None:
        runs = [(settings, seed, fraction) for settings in drawn for seed in seeds]
        if lacking := [run for run in runs if key_of(*run) not in log.runs]:
            ahead(lacking)

    def score(settings: Settings, fraction: float) -> float:
        spent.update({key_of(settings, seed, fraction): fraction for seed in plan.tuning_seeds})
        foresee([settings], plan.tuning_seeds, fraction)
        return float(np.mean([log.score(objective, settings, seed, fraction) for seed in plan.tuning_seeds]))

    foresee(search.foreseen(space, plan), plan.tuning_seeds, 1.0)
    trials = search.trials(space, plan, score)
    best = best_of(trials)
    tuned = [log.score(objective, best.settings, seed, 1.0) for seed in plan.tuning_seeds]
    foresee([best.settings], plan.reporting_seeds, 1.0)
    fresh = fresh_scores(log, objective, best, plan.reporting_seeds)
    return Tuned(
        settings=dict(best.settings),
        trials=tuple(trials),
        plan=plan,
        tuning_runs=len(spent),
        tuning_steps=round(plan.steps_per_run * math.fsum(spent.values())),
        tuning=mean_interval(tuned, level, binary=False),
        reported=mean_interval(fresh, level, binary=False),
        optimism=difference_interval(tuned, fresh, paired=False, level=level, binary=False),
    )


def best_of(trials: Sequence[Trial]) -> Trial:
    """Returns the trial with the largest score at full budget, the first of equals."""
    whole = [each for each in trials if each.fraction == 1.0 and math.isfinite(each.score)]
    if not whole:
        what = "has a finite score at full budget: fix the objective or the space"
        raise AssayError(f"none of {len(trials)} trials {what}")
    return max(whole, key=lambda each: each.score)


def fresh_scores(log: Journal, objective: Objective, best: Trial, seeds: Sequence[int]) -> list[float]:
    """Returns scores of the chosen settings on seeds that no search has seen."""
    scores = {seed: log.score(objective, best.settings, seed, 1.0) for seed in seeds}
    failed = [seed for seed, score in scores.items() if not math.isfinite(score)]
    if failed:
        raise AssayError(
            f"trial {best.number} was chosen but has no finite score on reporting seeds {failed}: fix the run"
        )
    return list(scores.values())
