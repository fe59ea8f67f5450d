"""Runs a recipe: a self-describing folder, checkpoints, signals, and exact resume.

A run is recipe + task + seed + steps. Killed at any moment and resumed, it equals the uninterrupted run bitwise (CPU).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Certified, State
from assay.core.slots import Task
from assay.engine import evaluation
from assay.engine.engine import Engine
from assay.engine.guards import Alarm, Alarms, GuardError
from assay.engine.loop import Loop, Step
from assay.engine.machine import describe_machine, tuned
from assay.engine.placement import Placement
from assay.evidence.intervals import Change, Estimate, mean_interval, measured_change
from assay.runs import plot
from assay.runs.config import differing
from assay.runs.deploy import with_predict
from assay.runs.folder import CONTENTS, Facts, Journal, read_metrics, write_readme
from assay.runs.options import RunOptions
from assay.runs.phases import before
from assay.runs.plan import WARMUP, Plan, make_plan, plan_of, repeat_command
from assay.runs.progress import Display, Mode, Noted
from assay.runs.signals import Stopped, resume_command, stop_signals
from assay.version import __version__

SAMPLES = 8
"""Sequences written to samples.jsonl at each evaluation."""

PHASE = "phase-1-" + WARMUP
"""The folder of the supervised phase inside a run's; the k-th phase NAME is in phase-k-NAME."""
OWN_NAMES = {*CONTENTS, "tensorboard"} - {"README.md"}
"""Files that may exist in the folder of a new run."""


@dataclass
class Run:
    """A finished (or loaded) run: the policy, the curves, the scores before and after, and the folder."""

    folder: Path
    recipe: Recipe
    task: Task
    models: Mapping[str, Any]
    curves: list[dict[str, Any]]
    scores_before: np.ndarray
    scores_after: np.ndarray
    alarms: list[Alarm]
    certificate: Certified | None = None

    @property
    def policy(self) -> Any:
        """Returns the policy to deploy: the actor or its wrapper; a control policy has `predict(observation)`."""
        return with_predict(self.recipe.policy(self.models), self.task)

    @property
    def before(self) -> Estimate:
        """Returns mean held-out score before training, with its interval."""
        return mean_interval(self.scores_before)

    @property
    def after(self) -> Estimate:
        """Returns mean held-out score after training, with its interval."""
        return mean_interval(self.scores_after)

    @property
    def change(self) -> Change:
        """Returns before, after, and the paired change on the same held-out starts."""
        return measured_change("held-out score", self.scores_before, self.scores_after, paired=True)

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Returns (steps, values) of one metric."""
        rows = [row for row in self.curves if row.get(name) is not None]
        return [row["step"] for row in rows], [row[name] for row in rows]


# ---------------------------------------------------------------------------------------------------- executing
@contextmanager
def within_memory(placement: Placement, folder: Path) -> Iterator[None]:
    """Turns an out-of-memory error into one that names the options that need less memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        rows, tokens = f"--micro-batch, now {placement.micro_batch}", f"--tokens, now {placement.at_once:,}"
        raise AssayError(
            f"out of memory on '{placement.device}' ({str(error).split('. ')[0]}). Restart with a smaller micro-batch "
            f"({tokens if placement.at_once else rows}), gradient checkpointing (--recompute), or LoRA "
            f"(--set lora.rank=16). The last checkpoint is in {folder}"
        ) from error


def execute(
    plan: Plan,
    folder: Path,
    *,
    mode: Mode | None = None,
    sinks: Sequence[Any] = (),
    weights: Mapping[str, Tensor] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Run:
    """Starts the plan in `folder`, or resumes from the folder's last checkpoint. Models start from `weights`, parts
    from the states in `data` that they request by name.
    """
    with within_memory(plan.placement, folder):
        loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps, placement=plan.placement)
    check_folder(folder)
    if plan.recipe.certificate is not None:  # refuses a task with too few held-out prompts
        evaluation.certified_starts(plan.task, plan.recipe.certificate.num_starts)
    memory = within_memory(plan.placement, folder)
    with memory, store.lock(folder), stop_signals() as signal_seen, Journal(folder) as journal:
        try:
            worker = Worker(plan, folder, loop, journal, signal_seen)
            if not worker.scores:
                begun, handed = before(plan, folder, mode, weights or {}, execute)
                loop.engine.load(begun, plan.recipe)
                if data or handed:
                    loop.begin({**(data or {}), **handed})
            with tuned(worker.num_parameters, bfloat16=loop.engine.bfloat16):
                run = worker.work(mode, sinks)
        except KeyboardInterrupt:
            how = "interrupted; steps after the last checkpoint will be repeated"
            raise Stopped(folder, signal_seen() or signal.SIGINT, how) from None
        if signal_seen():  # a signal during the last writes also stops the runs that follow
            raise Stopped(folder, signal_seen(), "stopped after it had finished")
        return run


def check_folder(folder: Path) -> None:
    """Refuses a folder with other files, which a run would overwrite."""
    try:
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise AssayError(f"{folder} is a file, not a folder. Choose another --out.") from None
    others = {name for name in names - OWN_NAMES if not name.startswith("phase-")}
    if "config.json" not in names and others:
        other = ", ".join(sorted(others)[:3])
        raise AssayError(f"{folder} is not a run folder and not empty (it holds {other}). Choose another --out.")


class Worker:
    """One run in one folder: starts or resumes, logs, evaluates, saves."""

    def __init__(self, plan: Plan, folder: Path, loop: Loop, journal: Journal, signal_seen: Callable[[], int]) -> None:
        self.plan, self.folder, self.journal, self.signal_seen = plan, folder, journal, signal_seen
        self.config = plan.config()
        self.loop = loop
        self.num_parameters = sum(flat.num_parameters for flat in self.loop.engine.flats.values())
        self.alarms = Alarms()
        self.notes: list[str] = []
        self.scores: dict[str, list[float]] = {}
        self.seconds: dict[str, float] = {}
        checkpoint = store.load(folder / "checkpoints")
        if checkpoint is None:
            self.begin()
        else:
            self.go_on(checkpoint)

    def begin(self) -> None:
        """Creates a new folder."""
        store.write_json(self.folder / "config.json", self.config | {"machine": describe_machine()})
        self.journal.truncate({})

    def go_on(self, checkpoint: store.Checkpoint) -> None:
        """Restores everything, and truncates the journals to the checkpoint."""
        saved = checkpoint.manifest["facts"]["fingerprint"]
        if saved != self.config["fingerprint"]:
            raise AssayError(
                f"{self.folder} holds a run with other settings ({differing(self.folder, self.config)}). Use another "
                "--out, or resume with the settings it was started with."
            )
        tree = checkpoint.tree
        self.loop.restore(tree["loop"])
        self.scores, self.seconds = tree["scores"], tree["seconds"]
        self.alarms = Alarms.of(tree["alarms"])
        resumed = [f"{reason}; resuming from step {checkpoint.step}" for reason in checkpoint.skipped]
        self.notes = [*resumed, *self.journal.truncate(tree["journal"])]

    def save(self) -> None:
        """Saves a checkpoint of everything."""
        begin = time.perf_counter()
        tree: State = {
            "loop": self.loop.snapshot(),
            "journal": self.journal.offsets(),
            "scores": self.scores,
            "seconds": dict(self.seconds),
            "alarms": self.alarms.snapshot(),
        }
        facts = {"fingerprint": self.config["fingerprint"], "assay": __version__, "steps": self.plan.steps}
        store.save(self.folder / "checkpoints", self.loop.progress.step, tree, facts=facts)
        self.count("save", time.perf_counter() - begin)

    def count(self, phase: str, seconds: float) -> None:
        """Adds to the time per phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def evaluate(self, step: int, display: Display) -> dict[str, float]:
        """Evaluates on held-out starts and keeps the scores by step; returns their mean and others (costs, ...)."""
        begin = time.perf_counter()
        with display.timed("evaluate"):
            values, costs = evaluation.outcomes(self.loop.policy, self.plan.task)
        self.scores[str(step)] = values.tolist()
        self.count("evaluate", time.perf_counter() - begin)
        return {"evaluation": float(values.mean()), **costs}

    def work(self, mode: Mode | None, sinks: Sequence[Any]) -> Run:
        """Runs the remaining steps."""
        plan, loop = self.plan, self.loop
        name = self.folder.name.split("-", 2)[2] if self.folder.name.startswith("phase-") else ""
        phase = {"": "", WARMUP: "warm-up: "}.get(name, f"{name}: ")
        title = f"{phase}{plan.recipe.name} on {plan.task.name}, seed {plan.seed}"
        with Display(title, plan.steps, first_step=loop.progress.step, mode=mode) as display:
            for note in self.notes:
                display.note(note)
            if not self.scores:
                self.journal.metrics(0, self.evaluate(0, display), {})
                with display.timed("save"):
                    self.save()
            while loop.progress.step < plan.steps:
                step = loop.step()
                self.record(step, display, sinks)
                done, asked = loop.progress.step, self.signal_seen()
                stops = [alarm for alarm in step.alarms if alarm.stop]
                if stops or asked or done % plan.save_every == 0 or done == plan.steps:
                    with display.timed("save"):
                        self.save()
                if stops:
                    raise GuardError(f"a guard stopped the run, its state is in {self.folder}: {stops[0].message}")
                if asked:
                    raise Stopped(self.folder, asked)
        return self.finish()

    def record(self, step: Step, display: Display, sinks: Sequence[Any]) -> None:
        """Logs a step, evaluates when it is due."""
        done = self.loop.progress.step
        values: dict[str, Any] = {"decisions_total": self.loop.progress.decisions, **step.metrics}
        for phase, seconds in step.seconds.items():
            self.count(phase, seconds)
        clock = dict(step.seconds)
        if done == self.plan.steps or (self.plan.evaluate_every and done % self.plan.evaluate_every == 0):
            begin = time.perf_counter()
            values |= self.evaluate(done, display)
            clock["evaluate"] = time.perf_counter() - begin
            if step.fresh is not None:
                for row in range(min(SAMPLES, len(step.fresh))):
                    self.journal.sample(done, self.plan.task.describe(step.fresh, row))
        self.alarms.add(step.alarms)
        if step.alarms:
            values["alarms"] = [alarm.message for alarm in step.alarms]
        self.journal.metrics(done, values, clock)
        for sink in sinks:
            sink.write(done, step.metrics)
        for alarm in step.alarms:
            display.alarm(alarm.message, stop=alarm.stop, kind=alarm.guard)
        display.step(step.metrics, step.seconds, int(step.metrics.get("decisions", 0)))

    def certificate(self) -> Certified | None:
        """Returns the certificate of the trained policy, or None if the recipe has none."""
        recipe = self.plan.recipe
        if recipe.certificate is None:
            return None
        rewards, engine = recipe.rewards, self.loop.engine
        states = self.loop.states["rewards"]
        return evaluation.certified(recipe.certificate, rewards, self.loop.policy, self.plan.task, engine, states)

    def finish(self) -> Run:
        """Returns the finished run after writing its README."""
        run = Run(
            folder=self.folder,
            recipe=self.plan.recipe,
            task=self.plan.task,
            models=self.loop.engine.models,
            curves=read_metrics(self.folder),
            scores_before=np.asarray(self.scores["0"]),
            scores_after=np.asarray(self.scores[str(self.plan.steps)]),
            alarms=self.alarms.kept,
            certificate=self.certificate(),
        )
        draw_curve(run)
        hidden = ("recipe", "task_settings")
        facts = Facts(
            title=f"{self.plan.recipe.name} on {self.plan.task.name}, seed {self.plan.seed}",
            state=f"Finished after {self.plan.steps} steps.{spoken(run.certificate)}",
            settings={name: value for name, value in self.config.items() if name not in hidden},
            repeat=repeat_command(self.plan),
            resume=resume_command(self.folder),
            changes=[run.change],
            alarms=noted(self.alarms),
            seconds=self.seconds,
        )
        write_readme(self.folder, facts)
        return run


def draw_curve(run: Run) -> None:
    """Draws learning_curve.png in the run folder; skipped without matplotlib, which the command line reports."""
    series = [plot.curve(run.recipe.name, "evaluation", [run.curves])]
    title = f"{run.recipe.name} on {run.task.name}"
    with suppress(AssayError):
        plot.learning_curve(run.folder / "learning_curve.png", series, title=title, subtitle="held-out score")


def spoken(certificate: Certified | None) -> str:
    """Returns a certificate's verdict as a sentence, or "" without a certificate."""
    if certificate is None:
        return ""
    return f" {'Certified' if certificate.holds else 'NO SOLUTION, do not use this policy'}: {certificate.statement}."


def noted(alarms: Alarms) -> list[Noted]:
    """Returns alarms by guard: the latest message and the count."""
    return [
        Noted(same[-1].message, alarms.counts[guard], any(alarm.stop for alarm in same))
        for guard in alarms.counts
        if (same := [alarm for alarm in alarms.kept if alarm.guard == guard])
    ]


# ---------------------------------------------------------------------------------------------------- public functions
def train(
    method: str | Recipe,
    task: str | Task,
    *,
    steps: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    warmup: int | None = None,
    evaluations: int = 10,
    placement: Placement = Placement(),
    model: str | None = None,
    data: Sequence[str] = (),
    preset: str | None = None,
    options: RunOptions = RunOptions(),
    mode: Mode | None = None,
) -> Run:
    """Trains a method (by name, or a recipe of your own) on a task and returns the run.

    `out` defaults to runs/<method>-<task>-<seed>. If the folder holds an unfinished run with the same settings, it is
    resumed; with other settings it is an error. On language tasks, training starts with `warmup` supervised steps on
    the task's demonstrations; `model`, a folder or hub id, replaces the small transformer by a pretrained language
    model. `data` are files (see `assay.datasets.files`) that replace the recipe's offline datasets. `preset` names a
    set of default settings: classic, mujoco or d4rl; None takes that of the task. `options` are those of the command
    line beyond these (see `assay.runs.options`).
    """
    plan = make_plan(
        method,
        task,
        steps=steps,
        seed=seed,
        settings=settings,
        warmup=warmup,
        evaluations=evaluations,
        placement=placement,
        model=model,
        data=data,
        preset=preset,
        options=options,
    )
    folder = Path(out) if out is not None else Path("runs") / f"{plan.recipe.name}-{plan.task.name}-{seed}"
    return execute(plan, folder, mode=mode)


def resume(folder: str | Path, *, mode: Mode | None = None) -> Run:
    """Resumes an interrupted run; loads a finished one."""
    return execute(plan_of(folder), Path(folder), mode=mode)


def load(folder: str | Path) -> tuple[Any, Plan, int]:
    """Returns (policy, plan, step) of a run's newest checkpoint; a control policy has `predict(observation)`."""
    plan = plan_of(folder)
    policy, step = loaded(plan, Path(folder))
    return with_predict(policy, plan.task), plan, step


def loaded(plan: Plan, folder: Path) -> tuple[Any, int]:
    """Returns (policy, step) of the newest checkpoint of a plan's run."""
    checkpoint = store.load(folder / "checkpoints")
    if checkpoint is None:
        raise AssayError(f"{folder} has no checkpoint yet. Start it with: {resume_command(folder)}")
    engine = Engine(plan.recipe, plan.task.spec, plan.seed, plan.placement)  # no simulation: only the policy is needed
    engine.restore(checkpoint.tree["loop"]["engine"])
    return plan.recipe.policy(engine.models), checkpoint.step
