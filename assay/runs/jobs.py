"""Runs many jobs in parallel: every run is its own process, so a crash is a line in a table.

The state of a run is in its folder only. After any crash the same call resumes: finished runs are read, interrupted
ones resumed, missing ones started.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import assay.methods
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.runs.folder import read_metrics
from assay.runs.plan import Plan, make_plan

EVALUATIONS = 10
"""Evaluations of runs that are compared, the same for all arms, unless the options say otherwise."""
PATIENCE = 30.0
"""Seconds that a run has to save its state after a stop signal."""


@dataclass(frozen=True, eq=False)
class Job:
    """One run: an arm on a task with a seed, in a folder; `options` go to `make_plan`."""

    arm: str
    task: str
    seed: int
    folder: Path
    method: str | Recipe
    options: Mapping[str, Any] = field(default_factory=dict)

    def plan(self) -> Plan:
        """Returns all settings that decide the result."""
        told = {"evaluations": EVALUATIONS, **self.options}
        if "options" in self.options and self.options["options"].cadence.evaluations is not None:
            told["evaluations"] = None  # the user's own number
        return make_plan(self.method, self.task, seed=self.seed, **told)


@dataclass(frozen=True)
class Result:
    """The result of a finished run: the last held-out score, its cost, and its metrics step by step."""

    job: Job
    score: float
    decisions: int
    seconds: float
    curves: Sequence[Mapping[str, Any]] = field(repr=False, default=())


@dataclass(frozen=True)
class Failure:
    """A run that has no result, and why."""

    job: Job
    reason: str


def result_of(job: Job, steps: int) -> Result | None:
    """Returns the result in the job's folder, if the run has finished there."""
    if not (job.folder / "metrics.jsonl").is_file():
        return None
    curves = read_metrics(job.folder)
    if not curves or (curves[-1]["step"] < steps and "ended" not in curves[-1]):
        return None
    score = curves[-1].get("evaluation")
    if score is None:
        raise AssayError(f"{job.folder} has no held-out score at its end. Remove the folder to run it again.")
    seconds = sum(sum(v for k, v in row.get("time", {}).items() if k not in ("at", "saved")) for row in curves)
    return Result(job, float(score), int(curves[-1].get("decisions_total", 0)), seconds, curves)


# ---------------------------------------------------------------------------------------------------- one process
def work(job: Job, parent: Connection) -> None:
    """Runs the job in the child process, then sends "" or the error on the pipe."""
    import torch

    from assay.runs.progress import Mode
    from assay.runs.run import execute

    torch.set_num_threads(1)
    threading.Thread(target=stop_with, args=(parent,), daemon=True).start()
    try:
        execute(job.plan(), job.folder, mode=Mode.SILENT)
    except AssayError as error:
        parent.send(str(error))
    except Exception as error:
        parent.send(f"{type(error).__name__}: {error}")
        raise
    else:
        parent.send("")


def stop_with(parent: Connection) -> None:
    """Stops this process when the other end of the pipe closes: an orphan would keep its folder locked."""
    try:
        parent.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


@dataclass
class Child:
    """A running job."""

    job: Job
    process: Any
    pipe: Connection
    started: float

    def ended(self) -> str:
        """Waits for the end; returns "" or the error."""
        try:
            said: str | None = self.pipe.recv()
        except (EOFError, OSError):
            said = None
        self.process.join()
        self.pipe.close()
        if said is not None:
            return said
        code = self.process.exitcode
        cause = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        return f"the process died ({cause}): out of memory, or killed from outside"


def start(job: Job) -> Child:
    """Starts a process for the job, forked from a server that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preloaded())
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(job, theirs), name=f"{job.arm} on {job.task}, seed {job.seed}")
    process.start()
    theirs.close()
    return Child(job, process, ours, time.monotonic())


def preloaded() -> list[str]:
    """Returns the modules that the server imports once, so that no run has to: the loop, all methods, figures."""
    methods = [f"{assay.methods.__name__}.{info.name}" for info in pkgutil.iter_modules(assay.methods.__path__)]
    return ["assay.runs.run", "matplotlib.figure", *methods]  # one that is not installed is left out


# ---------------------------------------------------------------------------------------------------- many
def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    *,
    deadline: float | None = None,
    watch: Callable[[Sequence[Child]], None] = lambda children: None,
) -> Iterator[Result | Failure]:
    """Yields the outcome of every job; runs at most `workers` at a time, starts none after `deadline` (monotonic s).

    Jobs finished before come first. `watch` is called twice a second with the running jobs. If the caller stops
    iterating or is interrupted, running jobs are told to save and stop.
    """
    if workers < 1:
        raise AssayError(f"--jobs is {workers}. Use at least 1.")
    waiting, children = [], list[Child]()
    steps = {}
    for job in jobs:
        plan = job.plan()
        steps[job] = plan.steps
        done = result_of(job, plan.steps)
        if done is None:
            waiting.append(job)
        else:
            check_same(job, plan)
            yield done
    waiting.reverse()
    try:
        while waiting or children:
            if deadline is not None and time.monotonic() > deadline:
                waiting.clear()
            while waiting and len(children) < workers:
                children.append(start(waiting.pop()))
            ready = wait([child.pipe for child in children], timeout=0.5)
            for child in [child for child in children if child.pipe in ready]:
                children.remove(child)
                reason = child.ended()
                result = None if reason else result_of(child.job, steps[child.job])
                yield Failure(child.job, reason or "it ended early") if result is None else result
            watch(children)
    finally:
        stop(children)


def check_same(job: Job, plan: Plan) -> None:
    """Refuses a folder whose run has other settings."""
    from assay.runs.config import read_config

    if read_config(job.folder / "config.json")["fingerprint"] != plan.config()["fingerprint"]:
        raise AssayError(f"{job.folder} holds a run with other settings. Choose another --out, or remove the folder.")


def stop(children: Sequence[Child]) -> None:
    """Tells all to save and stop; kills those that do not."""
    for child in children:
        child.process.terminate()
    until = time.monotonic() + PATIENCE
    for child in children:
        child.process.join(max(0.1, until - time.monotonic()))
        if child.process.is_alive():
            child.process.kill()
            child.process.join()
        child.pipe.close()
