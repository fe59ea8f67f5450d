"""Trains S seeds together: one ordinary run folder per seed, as if each had been trained alone.

Updates run stacked; sampling, evaluation, logging, checkpoints and guards are those of a single run. Each folder can be
read, compared and resumed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe, Stage
from assay.core.record import State
from assay.core.slots import Scene, Source, Task
from assay.engine.loop import Loop, Step
from assay.engine.machine import tuned
from assay.engine.placement import Placement
from assay.engine.stacked.engine import ALONE
from assay.engine.stacked.loop import StackedLoop
from assay.parts.sources.logged import own_dataset
from assay.runs.folder import Journal
from assay.runs.plan import make_plan
from assay.runs.progress import Display, Mode
from assay.runs.result import Run
from assay.runs.run import check_folder
from assay.runs.signals import Stopped, resume_command, stop_signals
from assay.runs.worker import Worker


@dataclass
class StackedRuns:
    """The outcome of the seeds: finished runs, and why others stopped."""

    runs: dict[int, Run] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)


def train_stacked(
    method: str | Recipe,
    task: str | Task,
    *,
    seeds: Iterable[int] = range(16),
    steps: int | None = None,
    out: str | Path = "runs",
    settings: Mapping[str, Any] | None = None,
    evaluations: int | None = None,
    data: Sequence[str] = (),
    device: str = "cpu",
    mode: Mode | None = None,
) -> StackedRuns:
    """Trains a method on an offline dataset (td3_bc, iql, cql, bc, ...) with several seeds at once.

    Every seed ends in its own folder out/<method>-<task>-<seed>, equal up to rounding to that of `assay.train` with
    this seed; a later call, or `assay resume`, resumes it. Updates run on `device`, tasks are played on the CPU. A
    seed that a guard stops, or whose gradient is NaN or infinite, stops alone and is named in the result.
    """
    first = make_plan(method, task, steps=steps, settings=settings, evaluations=evaluations, data=data)
    if first.recipe.rollout is not None or first.recipe.before or first.warmup:
        raise AssayError(f"recipe '{first.recipe.name}' gathers its own experience or has phases. {ALONE}")
    if own_dataset(first.task) is not None and not data:
        raise AssayError(f"task '{first.task.name}' has another dataset for each seed. {ALONE}")
    plans = [replace(first, seed=seed) for seed in dict.fromkeys(seeds)]
    folders = [Path(out) / f"{first.recipe.name}-{first.task.name}-{plan.seed}" for plan in plans]
    if not plans:
        raise AssayError("seeds is empty. Give at least one.")
    with ExitStack() as open_now:
        signal_seen = open_now.enter_context(stop_signals())
        loops = shared_loops(first.recipe, first.task, [plan.seed for plan in plans], first.steps)
        workers = []
        for plan, folder, loop in zip(plans, folders, loops, strict=True):
            check_folder(folder)
            open_now.enter_context(store.lock(folder))
            worker = Worker(plan, folder, loop, open_now.enter_context(Journal(folder)), signal_seen)
            open_now.callback(worker.saver.join)
            worker.config["stacked"] = {"seeds": [plan.seed for plan in plans], "device": device}
            if not worker.scores:
                worker.begin()
            workers.append(worker)
        title = f"{first.recipe.name} on {first.task.name}, {len(plans)} seeds"
        display = open_now.enter_context(Display(title, first.steps, watched=first.recipe.watched, mode=mode))
        open_now.enter_context(tuned(sum(worker.num_parameters for worker in workers)))
        return Together(workers, Placement(device), display, signal_seen).work()


class Together:
    """Workers whose loops are stepped together; those that lag behind first, until they reach the next ones."""

    def __init__(
        self, workers: Sequence[Worker], placement: Placement, display: Display, signal_seen: Callable[[], int]
    ) -> None:
        self.workers, self.placement, self.display, self.signal_seen = list(workers), placement, display, signal_seen
        self.quiet = Display("", workers[0].plan.steps, mode=Mode.SILENT)
        self.found = StackedRuns()

    def work(self) -> StackedRuns:
        """Runs the remaining steps of all seeds."""
        for worker in self.workers:
            if not worker.scores:
                worker.journal.metrics(0, worker.evaluate(0, self.quiet), {})
                worker.check_disk()
        while active := [worker for worker in self.workers if self.goes_on(worker)]:
            step = min(worker.loop.progress.step for worker in active)
            behind = [worker for worker in active if worker.loop.progress.step == step]
            ahead = [worker.loop.progress.step for worker in active if worker.loop.progress.step > step]
            self.advance(behind, min([*ahead, behind[0].plan.steps]))
        for worker in self.workers:
            if worker.plan.seed not in self.found.stopped:
                self.found.runs[worker.plan.seed] = worker.finish()
        return self.found

    def goes_on(self, worker: Worker) -> bool:
        """Returns whether a worker has steps left."""
        return worker.plan.seed not in self.found.stopped and worker.loop.progress.step < worker.plan.steps

    def advance(self, workers: Sequence[Worker], until: int) -> None:
        """Steps these workers, which are at the same step, up to a later one."""
        plan, stacked = workers[0].plan, StackedLoop([worker.loop for worker in workers], self.placement)
        while stacked.here and workers[stacked.here[0]].loop.progress.step < until:
            steps = stacked.step()
            done = max(worker.loop.progress.step for worker in workers)
            asked = self.signal_seen()
            spent = sum(sum(step.seconds.values()) for step in steps if step)
            saves = bool(asked) or workers[0].saver.due(done, spent) or done in (until, plan.last_step)
            if saves or plan.is_evaluated(done) or any(step and step.alarms for step in steps):
                stacked.write()
            for place, (worker, step) in enumerate(zip(workers, steps, strict=True)):
                if step is not None and not self.record(worker, step, saves, place in stacked.gone):
                    stacked.gone.add(place)
            self.show(steps)
            if asked:
                for worker in workers:
                    worker.saver.wait()
                raise Stopped(
                    workers[0].folder, asked, "stopped and saved; call train_stacked again, or resume each seed"
                )

    def record(self, worker: Worker, step: Step, saves: bool, has_fault: bool) -> bool:
        """Logs a seed's step, and saves if due; returns false if the seed has stopped."""
        worker.record(step, self.quiet)
        stops = [alarm for alarm in step.alarms if alarm.stop] or (step.alarms if has_fault else [])
        if stops or has_fault or saves:
            worker.save()
        if not stops and not has_fault:
            return True
        why = stops[0].message if stops else "its gradient was NaN or infinite"
        words = f"seed {worker.plan.seed} stopped at step {worker.loop.progress.step}: {why}. Resume it alone: "
        self.found.stopped[worker.plan.seed] = words + resume_command(worker.folder)
        self.display.alarm(self.found.stopped[worker.plan.seed], stop=True, kind=f"seed {worker.plan.seed}")
        return False

    def show(self, steps: Sequence[Step | None]) -> None:
        """Shows one step of all seeds, with the metrics of the first."""
        some = [step for step in steps if step is not None]
        self.display.step(some[0].metrics, {"update": sum(step.seconds.get("update", 0.0) for step in some)})


# ---------------------------------------------------------------------------------------------------- loops
@dataclass(frozen=True, eq=False)
class Begun(Source):
    """A source whose initial state exists already: an offline dataset that is read once serves every seed."""

    inner: Source
    state: State

    def init(self, scene: Scene) -> State:
        """Returns a shallow copy of the state."""
        return dict(self.state)

    def __call__(self, scene: Scene, state: State) -> Any:
        """Delegates to the inner source."""
        return self.inner(scene, state)


def shared_loops(recipe: Recipe, task: Task, seeds: Sequence[int], num_steps: int) -> list[Loop]:
    """Returns a loop per seed, whose sources share the data that was read once."""
    loops = [Loop(recipe, task, seed=seeds[0], num_steps=num_steps)]
    feeds = recipe.feeds
    begun = [Begun(feed.source, state) for feed, state in zip(feeds, loops[0].states["sources"], strict=True)]

    def shared(source: Source) -> Source:
        return next(mine for mine, feed in zip(begun, feeds, strict=True) if feed.source == source)

    def opened(stage: Stage) -> Stage:
        return stage if stage.source is None else replace(stage, source=shared(stage.source))

    copy = replace(recipe, source=shared(recipe.source), stages=tuple(map(opened, recipe.stages)))
    for seed in seeds[1:]:
        loop = Loop(copy, task, seed=seed, num_steps=num_steps)
        loop.recipe = recipe
        loops.append(loop)
    return loops
