"""Many runs side by side: every run is a process of its own, so the death of one is a line in a table.

A run's state is in its folder and nowhere else. Whoever is killed, the same call goes on: finished runs are read, cut
ones resumed, missing ones started.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.runs.folder import read_metrics
from assay.runs.plan import Plan, make_plan

PATIENCE = 30.0
"""Seconds that a run has to save its state when it is asked to stop."""


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
        """What decides its result."""
        return make_plan(self.method, self.task, seed=self.seed, **self.options)


@dataclass(frozen=True)
class Result:
    """What a finished run came to: the last held-out score, what it cost, and its metrics step by step."""

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
    """The result in the job's folder, if the run has finished there."""
    if not (job.folder / "metrics.jsonl").is_file():
        return None
    curves = read_metrics(job.folder)
    if not curves or curves[-1]["step"] != steps:
        return None
    score = curves[-1].get("evaluation")
    if score is None:
        raise AssayError(f"{job.folder} ends without a held-out score; remove the folder to run it again")
    seconds = sum(sum(v for k, v in row.get("time", {}).items() if k != "at") for row in curves)
    return Result(job, float(score), int(curves[-1].get("decisions_total", 0)), seconds, curves)


# ---------------------------------------------------------------------------------------------------- one process
def work(job: Job, parent: Connection) -> None:
    """What a child does: the run, then one word on the pipe: "" or what went wrong."""
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
    """Asks this process to stop when the other end of the pipe is gone: an orphan would hold its folder's lock."""
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
        """Waits for the end; "" or what went wrong."""
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
        return f"the process died ({cause}): out of memory, or stopped from outside"


def start(job: Job) -> Child:
    """A process that works on the job; a server that has imported everything forks it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["assay.runs.run"])
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(job, theirs), name=f"{job.arm} on {job.task}, seed {job.seed}")
    process.start()
    theirs.close()
    return Child(job, process, ours, time.monotonic())


# ---------------------------------------------------------------------------------------------------- many
def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    *,
    deadline: float | None = None,
    watch: Callable[[Sequence[Child]], None] = lambda children: None,
) -> Iterator[Result | Failure]:
    """Every job's outcome as it comes; at most `workers` at a time, none started after `deadline` (monotonic seconds).

    What was finished before comes first. `watch` is called twice a second with what is running. When the caller stops
    listening or is interrupted, running jobs are asked to save and stop.
    """
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
    """Refuses the result of other settings."""
    from assay.runs.plan import read_config

    if read_config(job.folder / "config.json")["fingerprint"] != plan.config()["fingerprint"]:
        raise AssayError(f"{job.folder} holds a run with other settings; choose another --out, or remove it")


def stop(children: Sequence[Child]) -> None:
    """Asks all to save and stop, and ends those that do not."""
    for child in children:
        child.process.terminate()
    until = time.monotonic() + PATIENCE
    for child in children:
        child.process.join(max(0.1, until - time.monotonic()))
        if child.process.is_alive():
            child.process.kill()
            child.process.join()
        child.pipe.close()
