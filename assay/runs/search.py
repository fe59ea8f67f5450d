"""Tunes a method by training it: settings of a recipe as a search space, runs as the objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.errors import AssayError
from assay.runs import catalogue
from assay.runs.arms import plain_name
from assay.runs.checks import checked_folder, checked_seeds
from assay.runs.jobs import Doomed, Failure, Result, run_jobs
from assay.runs.plan import make_plan
from assay.runs.pools import Job, Pool, Processes
from assay.runs.ranges import range_of
from assay.runs.user_code.running import try_rewards
from assay.statistics.intervals import inside, widths
from assay.statistics.search_space import Choice, Settings, Space, Uniform, Whole
from assay.statistics.tuning import Asked, Search, Tuned, TuningPlan
from assay.statistics.tuning import tune as run_search
from assay.statistics.tuning_journal import Report

MOST_TRIALS = 100_000


def parsed_space(words: Sequence[str]) -> Space:
    """Parses a search space of a command line.

    policy.learning_rate=1e-5:1e-2:log    a number between two, uniform in its logarithm
    rollout.group_size=2:16                  a whole number, both ends included
    credit.scale=true,false               one of several
    """
    settings: dict[str, Uniform | Whole | Choice] = {}
    for word in words:
        path, sign, range_of = word.partition("=")
        if not path or not sign or not range_of:
            raise AssayError(f"'{word}' is not a range. Write path=low:high, path=low:high:log or path=a,b,c.")
        if path in settings:
            raise AssayError(f"'{path}' is named twice. Give each setting one range.")
        settings[path] = parsed_range(word, range_of)
    return Space(settings)


def parsed_range(word: str, text: str) -> Uniform | Whole | Choice:
    """Parses low:high, low:high:log, or a,b,c."""
    ends = text.split(":")
    if len(ends) == 1:
        return Choice(tuple(text.split(",")))
    log = ends[2:] == ["log"]
    if len(ends) > 3 or (len(ends) == 3 and not log):
        raise AssayError(f"'{word}' is not a range. Only :log may follow low:high.")
    try:
        if all(end.strip().lstrip("+-").isdigit() for end in ends[:2]):
            return Whole(int(ends[0]), int(ends[1]), log)
        return Uniform(float(ends[0]), float(ends[1]), log)
    except ValueError:
        raise AssayError(f"'{word}' is not a range. '{ends[0]}' and '{ends[1]}' must be numbers.") from None


class Training:
    """The objective: trains with the settings and returns the last held-out score. Every run has its own folder.

    `ahead` runs several at once, at most `workers`, in the pool. `tell` gets a line for each finished run.
    """

    def __init__(
        self,
        method: str,
        task: str,
        steps: int | None,
        folder: Path,
        options: Mapping[str, Any],
        tell: Callable[[str], None] = lambda line: None,
        workers: int | None = None,
        pool: Pool = Processes(),
    ) -> None:
        self.method, self.task, self.folder, self.options = method, task, folder, dict(options)
        self.tell, self.workers, self.pool = tell, workers, pool
        self.fixed: dict[str, Any] = dict(self.options.get("settings") or {})
        self.done: dict[Path, Result | Failure] = {}
        self.doomed = Doomed()
        catalogue.find_method(method)
        planned = make_plan(method, task, steps=steps, **self.options)
        self.steps, self.range = planned.steps, range_of(planned.task)

    def check(self, space: Space) -> None:
        """Refuses a setting that the recipe does not have, or that --set fixes, and a broken reward, before compute is
        spent.
        """
        for name in self.fixed.keys() & space.settings.keys():
            raise AssayError(f"'{name}' is searched and set by --set {name}={self.fixed[name]}. Use one of the two.")
        for share in (0.001, 0.999):
            tried = {name: each.at(share) for name, each in space.settings.items()}
            plan = make_plan(self.method, self.task, **{**self.options, "settings": self.fixed | tried})
        try_rewards(plan.task, plan.recipe)

    def job(self, settings: Settings, seed: int, budget_fraction: float) -> Job:
        """Returns the run of these settings, in a folder named by their fingerprint."""
        steps = max(1, round(self.steps * budget_fraction))
        name = store.fingerprint({"settings": {key: str(value) for key, value in settings.items()}, "steps": steps})
        options = {**self.options, "steps": steps, "settings": self.fixed | dict(settings)}
        return Job("tuned", self.task, seed, self.folder / name / f"seed-{seed}", self.method, options)

    def ahead(self, asked: Sequence[Asked]) -> None:
        """Runs what is not yet done, several at a time; tells of each when it ends. AssayError after two equal failures
        in code, while no run has ended well: nothing of them is kept as a trial, and the same command goes on.
        """
        jobs = {job.folder: job for job in (self.job(*one) for one in asked) if job.folder not in self.done}
        reason = ""
        for one in run_jobs(list(jobs.values()), self.workers, pool=self.pool, doomed=self.doomed):
            if isinstance(one, Failure) and not one.started:
                raise AssayError(f"the search ends after two equal failures ({reason}). Run it again after the fix.")
            reason = one.reason if isinstance(one, Failure) else reason
            self.done[one.job.folder] = one
            steps = one.job.options["steps"]
            settings = {key: value for key, value in one.job.options["settings"].items() if key not in self.fixed}
            chosen = ", ".join(f"{key}={spoken(value)}" for key, value in settings.items())
            end = f"failed: {one.reason}" if isinstance(one, Failure) else f"{one.score:.4g} after {one.seconds:.0f} s"
            self.tell(f"run {len(self.done)}  {chosen}, seed {one.job.seed}, {steps} steps: {end}")

    def __call__(self, settings: Settings, seed: int, budget_fraction: float, report: Report) -> float:
        """Runs one training in its own process; a failed one scores NaN, which no search chooses."""
        self.ahead([(settings, seed, budget_fraction)])
        one = self.done[self.job(settings, seed, budget_fraction).folder]
        return float("nan") if isinstance(one, Failure) else one.score


def folder_of(method: str, task: str) -> Path:
    """Returns the folder of a search for which none is named."""
    return Path("runs") / f"tune-{'-'.join(map(plain_name, (method, task)))}"


def tuned(training: Training, space: Space, trials: int, tuning_seeds: int, seeds: int, how: Search) -> Tuned:
    """Searches the space on the first `tuning_seeds` seeds and reports the best settings on the `seeds` after them; a
    search in the same folder is resumed. AssayError for numbers out of range, before compute is spent.
    """
    checked_seeds(tuning_seeds, "--tuning-seeds")
    checked_seeds(seeds)
    if not 1 <= trials <= MOST_TRIALS:
        raise AssayError(f"--trials is {trials}. Use a number from 1 to {MOST_TRIALS:,}.")
    checked_folder(training.folder, ("trials.jsonl",))
    training.check(space)
    fresh = tuple(range(tuning_seeds, tuning_seeds + seeds))
    plan = TuningPlan(trials, tuple(range(tuning_seeds)), fresh, training.steps)
    journal = training.folder / "trials.jsonl"
    found = run_search(space, training, plan, search=how, journal=journal, ahead=training.ahead)
    ends = training.range
    return replace(
        found,
        tuning=inside(found.tuning, ends),
        reported=inside(found.reported, ends),
        optimism=inside(found.optimism, widths(ends)),
    )


def spoken(value: Any) -> str:
    """Returns a setting in a few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
