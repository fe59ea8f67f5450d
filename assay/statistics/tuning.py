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

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Draw
from assay.ops import random
from assay.statistics.intervals import Estimate, difference_interval, mean_interval

Setting: TypeAlias = float | int | str | bool | None
Settings: TypeAlias = Mapping[str, Setting]
Report: TypeAlias = Callable[[float, float], None]
Objective: TypeAlias = Callable[[Settings, int, float, Report], float]
Scorer: TypeAlias = Callable[[Settings, float], float]
Asked: TypeAlias = tuple[Settings, int, float]


# ---------------------------------------------------------------------------------------------------- space
@dataclass(frozen=True)
class Uniform:
    """A real number, uniform between its ends, or uniform in its logarithm."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        check_ends(self.low, self.high, self.log)

    def at(self, share: float) -> Setting:
        """Returns the quantile of a share in (0, 1)."""
        if self.log:
            return min(self.high, max(self.low, math.exp(between(math.log(self.low), math.log(self.high), share))))
        return between(self.low, self.high, share)

    def asked(self, name: str, trial: Any) -> Setting:
        """Returns the suggestion of Optuna's trial."""
        return float(trial.suggest_float(name, self.low, self.high, log=self.log))


@dataclass(frozen=True)
class Whole:
    """A whole number from low to high, both included; with `log`, as the floor of a log-uniform number."""

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        if self.low != int(self.low) or self.high != int(self.high):
            raise AssayError(f"ends must be whole numbers, got {self.low} and {self.high}: use Uniform for reals")
        check_ends(self.low, self.high, self.log)

    def at(self, share: float) -> Setting:
        """Returns the quantile of a share in (0, 1)."""
        value = Uniform(self.low, self.high + 1, self.log).at(share)
        return min(self.high, math.floor(float(value or 0.0)))

    def asked(self, name: str, trial: Any) -> Setting:
        """Returns the suggestion of Optuna's trial."""
        return int(trial.suggest_int(name, self.low, self.high, log=self.log))


@dataclass(frozen=True)
class Choice:
    """One of several options, each as likely as the others."""

    options: tuple[Setting, ...]

    def __post_init__(self) -> None:
        if not self.options or any(not isinstance(each, float | int | str | bool | None) for each in self.options):
            raise AssayError(f"options must be one or more numbers, words, booleans or None, got {self.options!r}")

    def at(self, share: float) -> Setting:
        """Returns the quantile of a share in (0, 1)."""
        return self.options[math.floor(share * len(self.options))]

    def asked(self, name: str, trial: Any) -> Setting:
        """Returns the suggestion of Optuna's trial."""
        return self.options[int(trial.suggest_categorical(name, list(range(len(self.options)))))]


@dataclass(frozen=True)
class Space:
    """The settings to search, by name."""

    settings: Mapping[str, Uniform | Whole | Choice]

    def __post_init__(self) -> None:
        if not self.settings:
            raise AssayError("settings must name at least one setting to search, got none: name one")

    def sample(self, draw: Draw) -> dict[str, Setting]:
        """Draws independent values, a hash of the draw: the same on every call and machine."""
        shares = random.uniform(draw, np.arange(len(self.settings)))
        return {name: each.at(float(share)) for (name, each), share in zip(self.settings.items(), shares, strict=True)}


def between(low: float, high: float, share: float) -> float:
    """Interpolates between the ends, never beyond them."""
    return min(high, max(low, low + (high - low) * share))


def check_ends(low: float, high: float, log: bool) -> None:
    """Refuses ends that are not finite and in order, or not positive on a logarithmic scale."""
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise AssayError(f"low and high must be finite and in order, got {low} and {high}: swap or change them")
    if log and low <= 0:
        raise AssayError(f"low must be above 0 on a logarithmic scale, got {low}: raise it or drop log")


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


# ---------------------------------------------------------------------------------------------------- journal
@dataclass
class Journal:
    """Finished runs by (settings, seed, fraction), in memory and, with a path, as JSON lines on disk."""

    path: Path | None
    header: str
    runs: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a run whose line was cut off by a kill is run again
        if whole != text:
            self.path.write_text(whole, encoding="utf-8")
        rows = [self.parsed(line, number) for number, line in enumerate(whole.splitlines(), 1)]
        if not rows:
            self.append({"search": self.header})
        elif rows[0].get("search") != self.header:
            raise AssayError(f"{self.path} is the journal of another space, plan or search: name another path")
        self.runs.update({row["key"]: as_score(row["score"]) for row in rows[1:]})

    def parsed(self, line: str, number: int) -> dict[str, Any]:
        """Parses one line; refuses anything but a JSON object."""
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise AssayError(f"line {number} of {self.path} is not JSON ({error}): remove the line") from error
        if not isinstance(row, dict) or not ({"search"} <= set(row) or {"key", "score"} <= set(row)):
            raise AssayError(f"line {number} of {self.path} is not a run of a search: remove the line")
        return row

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes a line and flushes it to disk."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def score(self, objective: Objective, settings: Settings, seed: int, fraction: float) -> float:
        """Returns the score of a run, from the journal or by running it."""
        key = key_of(settings, seed, fraction)
        if key not in self.runs:
            curve: list[tuple[float, float]] = []
            score = as_score(objective(settings, seed, fraction, lambda part, value: curve.append((part, value))))
            known = score if math.isfinite(score) else None
            curve = [(float(part), float(value)) for part, value in curve if math.isfinite(value)]
            self.append({"key": key, "score": known, "curve": curve})
            self.runs[key] = score
        return self.runs[key]


def key_of(settings: Settings, seed: int, fraction: float) -> str:
    """Returns the name of a run: equal settings, seed and share of the budget are one run."""
    return json.dumps([dict(settings), seed, fraction], sort_keys=True)


def as_score(value: Any) -> float:
    """Returns the score as a number; -infinity for a failed run."""
    try:
        score = -math.inf if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise AssayError(f"the objective must return a number, got {value!r}: return the score of the run") from error
    return score if math.isfinite(score) else -math.inf


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

    def score(settings: Settings, fraction: float) -> float:
        spent.update({key_of(settings, seed, fraction): fraction for seed in plan.tuning_seeds})
        foresee([settings], plan.tuning_seeds, fraction)
        return float(np.mean([log.score(objective, settings, seed, fraction) for seed in plan.tuning_seeds]))

    def foresee(drawn: Sequence[Settings], seeds: Sequence[int], fraction: float) -> None:
        runs = [(settings, seed, fraction) for settings in drawn for seed in seeds]
        if lacking := [run for run in runs if key_of(*run) not in log.runs]:
            ahead(lacking)

    foresee(search.foreseen(space, plan), plan.tuning_seeds, 1.0)
    trials = search.trials(space, plan, score)
    whole = [each for each in trials if each.fraction == 1.0 and math.isfinite(each.score)]
    if not whole:
        raise AssayError(
            f"none of {len(trials)} trials has a finite score at full budget: fix the objective or the space"
        )
    best = max(whole, key=lambda each: each.score)
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
        optimism=difference_interval(tuned, fresh, paired=False, level=level),
    )


def fresh_scores(log: Journal, objective: Objective, best: Trial, seeds: Sequence[int]) -> list[float]:
    """Returns scores of the chosen settings on seeds that no search has seen."""
    scores = {seed: log.score(objective, best.settings, seed, 1.0) for seed in seeds}
    failed = [seed for seed, score in scores.items() if not math.isfinite(score)]
    if failed:
        raise AssayError(
            f"trial {best.number} was chosen but has no finite score on reporting seeds {failed}: fix the run"
        )
    return list(scores.values())
