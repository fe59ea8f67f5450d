"""One run in one folder: starts or resumes, steps, logs, evaluates, saves, and stops."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from assay.core import store
from assay.core.errors import AssayError
from assay.core.record import Certified, State
from assay.core.trees import encode, encoded
from assay.engine import evaluation
from assay.engine.guards.correctness import Alarm, Alarms, GuardError
from assay.engine.loop import Loop, Step
from assay.engine.machine import describe_machine
from assay.engine.memory import estimates
from assay.runs import hardware, result
from assay.runs.adapters import adapter_note
from assay.runs.config import differing
from assay.runs.distributed.ranks import written
from assay.runs.folder import README, Facts, Journal, read_metrics, write_readme
from assay.runs.language import long_pairs_note
from assay.runs.library_versions import VERSIONS, base_files, check_base, compared_versions, library_versions
from assay.runs.plan import WARMUP, Plan, repeat_command
from assay.runs.progress import Display, Mode
from assay.runs.replay import replay_notes
from assay.runs.restoring import restore
from assay.runs.result import Run
from assay.runs.saving import Saver, best_step
from assay.runs.signals import Stopped, resume_command
from assay.runs.sinks import Sink
from assay.runs.systems import describe_studied, describe_unused
from assay.runs.user_code.known_runs import remember
from assay.runs.user_code.running import try_rewards
from assay.version import __version__

SAMPLES = 8
"""Sequences written to samples.jsonl at each evaluation."""

Callback: TypeAlias = Callable[[int, Mapping[str, Any], Any], str | bool | None]
"""Called after every step with (step, metrics, policy). A text, or True, ends the run with that reason."""


@dataclass(frozen=True)
class Listeners:
    """What is told of every step besides the run folder: functions of the user, and sinks."""

    callbacks: tuple[Callback, ...] = ()
    sinks: tuple[Sink, ...] = ()


class Worker:
    """One run in one folder: starts or resumes, logs, evaluates, saves."""

    def __init__(self, plan: Plan, folder: Path, loop: Loop, journal: Journal, signal_seen: Callable[[], int]) -> None:
        self.plan, self.folder, self.journal, self.signal_seen = plan, folder, journal, signal_seen
        self.config = plan.config()
        self.loop = loop
        self.num_parameters = sum(flat.num_parameters for flat in self.loop.engine.flats.values())
        self.alarms = Alarms()
        self.notes = replay_notes(plan.task, folder)
        self.scores: dict[str, list[float]] = {}
        self.seconds: dict[str, float] = {}
        self.ended, self.failure = "", ""
        cadence = plan.options.cadence
        frozen = [name for name, copy in plan.recipe.copies.items() if copy.rate == 0 and copy.gate is None]
        self.saver = Saver(
            folder / "checkpoints",
            steps=plan.save_every,
            seconds=cadence.save_seconds,
            keep=cadence.keep,
            frozen=[f"loop.engine.models.{name}." for name in frozen],
        )
        checkpoint = store.load(folder / "checkpoints")
        if checkpoint is None:
            check_not_lost(folder)
            self.begin()
        else:
            self.go_on(checkpoint)

    def begin(self) -> None:
        """Creates a new folder, after own rewards were tried."""
        try_rewards(self.plan.task, self.plan.recipe, self.folder)
        machine = {"machine": describe_machine(), VERSIONS: library_versions()}
        config = self.config | machine | base_files(self.plan, self.loop.engine)
        remember(self.folder, encode(config, "", None))  # before config.json: a kill leaves no unknown one
        store.write_json(self.folder / "config.json", config)
        self.journal.truncate({})

    def go_on(self, checkpoint: store.Checkpoint) -> None:
        """Restores everything, and truncates the journals to the checkpoint."""
        facts = checkpoint.manifest["facts"]
        if facts["fingerprint"] != self.config["fingerprint"]:
            raise AssayError(
                f"{self.folder} holds a run with other settings ({differing(self.folder, self.config)}). Use another "
                "--out (out= in Python), or resume with the settings it was started with."
            )
        check_base(self.folder, self.plan, self.loop.engine)
        tree = checkpoint.tree
        restore(self.loop, checkpoint, self.folder)
        self.scores, self.seconds = tree["scores"], tree["seconds"]
        self.alarms = Alarms.of(tree["alarms"])
        self.saver.newest = self.saver.written = checkpoint.step
        ended = tree.get("ended", {})
        if ended.get("last") == self.plan.last_step:  # a longer run does not end where the shorter one did
            self.ended = str(ended["reason"])
        self.note_more_steps()
        resumed = [f"{reason}; resuming from step {checkpoint.step}" for reason in checkpoint.skipped]
        self.notes = [*resumed, *self.journal.truncate(tree["journal"])]
        if not self.is_over:
            self.notes += compared_versions(facts)

    def note_more_steps(self) -> None:
        """Writes the number of added steps into config.json if it has changed."""
        path = self.folder / "config.json"
        there = json.loads(path.read_text())
        if there.get("more_steps", 0) != self.plan.more_steps:
            store.write_json(path, there | {"more_steps": self.plan.more_steps})

    @property
    def is_over(self) -> bool:
        """Whether no steps are left."""
        return bool(self.ended) or self.loop.progress.step >= self.plan.last_step

    # ------------------------------------------------------------------------------------------------ saving
    def save(self) -> None:
        """Saves a checkpoint of everything; returns while it is being written."""
        begin = time.perf_counter()
        tree: State = {
            "loop": self.loop.snapshot(),
            "journal": self.journal.offsets(),
            "scores": self.scores,
            "seconds": dict(self.seconds),
            "alarms": self.alarms.snapshot(),
        }
        if self.ended:
            tree["ended"] = {"reason": self.ended, "last": self.plan.last_step}
        facts = {"fingerprint": self.config["fingerprint"], "assay": __version__, "steps": self.plan.steps}
        best = best_step(self.scores) if self.plan.options.cadence.best else None
        self.saver.save(
            self.loop.progress.step,
            tree,
            facts=facts | {"torch": str(torch.__version__)},
            besides=() if best is None else (best,),
            written=partial(written, self.loop, self.saver.folder),
        )
        self.count("save", time.perf_counter() - begin)

    def check_disk(self) -> str:
        """Returns a sentence on the disk space of checkpoints; AssayError if the disk has too little. An empty replay
        buffer is counted as it will be. Starts the clock of the checkpoints.
        """
        plan, size = self.plan, encoded(self.loop.snapshot()).size
        expected = estimates(plan.recipe, plan.task.spec, plan.steps, plan.placement.device)
        size += sum(each.bytes for each in expected if each.path.endswith(".capacity")) * (self.saver.newest is None)
        size += encoded(self.loop.engine.own_slices()).size * (self.loop.engine.ranks.num - 1)
        self.saver.start(size)
        return self.saver.check_disk(size, int(plan.options.cadence.best))

    def count(self, phase: str, seconds: float) -> None:
        """Adds to the time per phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    # ------------------------------------------------------------------------------------------------ steps
    def evaluate(self, step: int, display: Display) -> dict[str, float]:
        """Evaluates on held-out starts and keeps the scores by step; returns their mean and others (costs, ...)."""
        begin = time.perf_counter()
        with display.timed("evaluate"):
            num, reference = self.plan.num_starts, self.loop.reference
            found = evaluation.evaluate(self.loop.policy, self.loop.task, num=num, reference=reference)
        self.scores[str(step)] = found.values.tolist()
        for sample in evaluation.describe_samples(found, self.plan.task, SAMPLES):
            self.journal.sample(step, sample)
        self.count("evaluate", time.perf_counter() - begin)
        return {"evaluation": float(found.values.mean()), **found.more}

    def work(self, mode: Mode | None, listeners: Listeners = Listeners()) -> Run:
        """Runs the remaining steps."""
        plan, loop = self.plan, self.loop
        name = self.folder.name.split("-", 2)[2] if self.folder.name.startswith("phase-") else ""
        phase = {"": "", WARMUP: "warm-up: "}.get(name, f"{name}: ")
        title = f"{phase}{plan.recipe.name} on {plan.task.name}, seed {plan.seed}"
        beside = loop.recipe.watched
        with Display(title, plan.last_step, first_step=loop.progress.step, watched=beside, mode=mode) as display:
            place = hardware.describe_precision(plan.model, loop.engine)
            words = place, describe_unused(plan.method, plan.task), describe_studied(plan.method)
            rates = adapter_note(plan.recipe, plan.model, plan.options, plan.settings)
            begun = () if self.is_over else (*words, rates, long_pairs_note(plan.task, plan.recipe))
            for note in filter(None, (*begun, *self.notes, "" if self.is_over else self.check_disk())):
                display.note(note)
            try:
                if not self.scores:
                    self.first(display, listeners)
                while not self.is_over:
                    step = loop.step()
                    self.record(step, display, listeners)
                    stops = [alarm for alarm in step.alarms if alarm.stop]
                    number = self.signal_seen()  # once: one that comes while this step is saved stops the next
                    self.save_if_due(step, display, stops, number)
                    self.stop(stops, number)
                self.settle(display)
            finally:
                self.saver.join()  # the lock is released only after the last write
        return self.finish()

    def first(self, display: Display, listeners: Listeners) -> None:
        """Evaluates and logs the policy before training."""
        values: dict[str, Any] = dict(self.evaluate(0, display))
        self.ended = self.reached(values)
        self.journal.metrics(0, values | ({"ended": self.ended} if self.ended else {}), {})
        for sink in listeners.sinks:
            sink.write(0, numbers(values, {}, {}))

    def save_if_due(self, step: Step, display: Display, stops: Sequence[Alarm], number: int) -> None:
        """Saves after a step if a checkpoint is due, or if the run stops here; then waits until it is written."""
        is_last = bool(stops or number or self.failure)
        if is_last or self.saver.due(self.loop.progress.step, sum(step.seconds.values())) or self.is_best:
            with display.timed("save"):
                self.save()
        if is_last:
            self.settle(display)

    def settle(self, display: Display) -> None:
        """Saves the present step if it is not yet, and waits until everything is written."""
        begin = time.perf_counter()
        with display.timed("save"):
            if self.saver.newest != self.loop.progress.step:
                self.save()
                begin = time.perf_counter()
            self.saver.wait()
        self.count("save", time.perf_counter() - begin)

    def stop(self, stops: Sequence[Alarm], number: int) -> None:
        """Raises the error of a run that stops here and is saved: a guard's, a callback's, or that of a signal."""
        if stops:
            raise GuardError(f"a guard stopped the run, its state is in {self.folder}: {stops[0].message}")
        if self.failure:
            raise AssayError(f"{self.failure}. The run is saved; fix the callback and resume")
        if number:
            raise Stopped(self.folder, number)

    def record(self, step: Step, display: Display, listeners: Listeners = Listeners()) -> None:
        """Logs a step, evaluates when it is due, and asks whether the run ends."""
        done = self.loop.progress.step
        values: dict[str, Any] = {"decisions_total": self.loop.progress.decisions, **step.metrics}
        for phase, seconds in step.seconds.items():
            self.count(phase, seconds)
        clock = dict(step.seconds)
        if self.plan.is_evaluated(done):
            self.evaluate_and_sample(step, values, clock, display)
        self.alarms.add(step.alarms)
        if step.alarms:
            values["alarms"] = [alarm.message for alarm in step.alarms]
        self.ended = self.reached(values) or self.asked(done, values, listeners.callbacks)
        if self.ended:
            if str(done) not in self.scores:
                self.evaluate_and_sample(step, values, clock, display)
            values["ended"] = self.ended
        if self.saver.written is not None:
            clock["saved"] = self.saver.written
        self.journal.metrics(done, values, clock)
        for sink in listeners.sinks:
            sink.write(done, numbers(values, clock, self.alarms.counts))
        for alarm in step.alarms:
            display.alarm(alarm.message, stop=alarm.stop, kind=alarm.guard)
        display.step(step.metrics, step.seconds, int(step.metrics.get("decisions", 0)))

    def evaluate_and_sample(
        self, step: Step, values: dict[str, Any], clock: dict[str, float], display: Display
    ) -> None:
        """Adds an evaluation and its time to a step's values, and writes some of the step's sequences."""
        begin, done = time.perf_counter(), self.loop.progress.step
        values |= self.evaluate(done, display)
        step.alarms += self.loop.observe_scores(self.scores[str(done)])
        clock["evaluate"] = time.perf_counter() - begin
        if step.fresh is not None:
            for row in range(min(SAMPLES, len(step.fresh))):
                self.journal.sample(done, self.plan.task.describe(step.fresh, row))

    # ------------------------------------------------------------------------------------------------ the end
    @property
    def is_best(self) -> bool:
        """Whether the run keeps its best checkpoint and this step is the best so far."""
        return self.plan.options.cadence.best and best_step(self.scores) == self.loop.progress.step

    def reached(self, values: Mapping[str, Any]) -> str:
        """Returns why the run ends if the held-out score has reached the target, else ""."""
        score, target = values.get("evaluation"), self.plan.options.cadence.target()
        return f"the held-out score {score:.4g} reached {target:g}" if score is not None and score >= target else ""

    def asked(self, done: int, values: Mapping[str, Any], callbacks: Sequence[Callback]) -> str:
        """Calls the callbacks; returns the reason of one that asks to stop, else "". An error is kept for `stop`."""
        for callback in callbacks:
            name = getattr(callback, "__qualname__", type(callback).__name__)
            try:
                answer = callback(done, dict(values), self.loop.policy)
            except (Exception, SystemExit) as error:
                self.failure = f"callback '{name}' raised {type(error).__name__} at step {done}: {error}"
                return ""
            if answer:
                return answer if isinstance(answer, str) else f"callback '{name}' asked to stop"
        return ""

    def certificate(self) -> Certified | None:
        """Returns the certificate of the trained policy, or None if the recipe has none."""
        recipe = self.plan.recipe
        if recipe.certificate is None:
            return None
        rewards, engine = recipe.rewards, self.loop.engine
        states = self.loop.states["rewards"]
        return evaluation.certified(recipe.certificate, rewards, self.loop.policy, self.loop.task, engine, states)

    def finish(self) -> Run:
        """Returns the finished run after writing its README."""
        self.saver.wait()
        done = self.loop.progress.step
        run = Run(
            folder=self.folder,
            recipe=self.plan.recipe,
            task=self.plan.task,
            models=self.loop.engine.models,
            curves=read_metrics(self.folder),
            scores_before=np.asarray(self.scores["0"]),
            scores_after=np.asarray(self.scores[str(done)]),
            alarms=self.alarms.kept,
            certificate=self.certificate(),
            ended=self.ended,
            seconds=dict(self.seconds),
            plan=self.plan,
        )
        result.draw_curve(run)
        hidden = ("recipe", "task_settings")
        facts = Facts(
            title=f"{self.plan.recipe.name} on {self.plan.task.name}, seed {self.plan.seed}",
            state=f"Finished after {done} steps{f': {self.ended}' * bool(self.ended)}.{result.spoken(run.certificate)}",
            settings={name: value for name, value in self.config.items() if name not in hidden},
            repeat=repeat_command(self.plan),
            resume=resume_command(self.folder),
            changes=[run.change],
            alarms=result.noted(self.alarms),
            seconds=self.seconds,
        )
        write_readme(self.folder, facts)
        return run


def check_not_lost(folder: Path) -> None:
    """Refuses to start over where a run had checkpoints and has none now."""
    metrics = folder / "metrics.jsonl"
    if not metrics.is_file():
        return
    rows = read_metrics(folder)
    if (folder / README).is_file() or any("saved" in row.get("time", {}) for row in rows):
        last = rows[-1]["step"] if rows else 0
        raise AssayError(
            f"{folder} has the records of {last} steps and no checkpoint: {folder / 'checkpoints'} was removed or "
            "emptied. Restore it, or remove the folder to start from step 0"
        )


def numbers(values: Mapping[str, Any], clock: Mapping[str, float], alarms: Mapping[str, int]) -> dict[str, float]:
    """Returns what sinks show: metrics, held-out scores and decisions; seconds under time/, alarms so far by guard
    under alarms/.
    """
    found = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    found |= {f"time/{phase}": seconds for phase, seconds in clock.items() if phase != "saved"}
    return found | {f"alarms/{guard}": float(count) for guard, count in alarms.items()}
