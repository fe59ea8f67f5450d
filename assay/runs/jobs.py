"""Runs many jobs in parallel: every run is its own process, so a crash is a line in a table.

The state of a run is in its folder only. After any crash the same call resumes: finished runs are read, interrupted
ones resumed, missing ones started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.errors import AssayError
from assay.core.faults import Fault
from assay.runs.folder import read_metrics
from assay.runs.plan import Plan
from assay.runs.pools import Child, Ended, Job, Pool, Processes
from assay.runs.user_code.consent import Code


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
    """A run that has no result, and why; where code failed, if it did. A run that would have failed as two others did
    was not `started`.
    """

    job: Job
    reason: str
    fault: Fault | None = None
    started: bool = True


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


def run_jobs(
    jobs: Sequence[Job],
    workers: int | None = None,
    *,
    pool: Pool = Processes(),
    deadline: float | None = None,
    watch: Callable[[Sequence[Child]], None] = lambda children: None,
    doomed: Doomed | None = None,
) -> Iterator[Result | Failure]:
    """Yields the outcome of every job; runs at most `workers` at a time (None: as many as the pool has room for),
    starts none after `deadline` (monotonic s).

    Jobs finished before come first. One whose process died is started once more if its folder has a checkpoint. After
    two equal failures in code, jobs that would fail the same way are not started; `doomed` has earlier ones.
    `watch` is called twice a second with the running jobs. If the caller stops iterating or is interrupted, running
    jobs are told to save and stop.
    """
    if workers is not None and workers < 1:
        raise AssayError(f"--jobs is {workers}. Use at least 1.")
    children, again, doomed = list[Child](), set[Job](), Doomed() if doomed is None else doomed
    plans: dict[Job, tuple[int, Code]] = {}
    finished, waiting = finished_before(jobs, plans, doomed)
    yield from finished
    room = workers or (pool.size if waiting else 1)
    try:
        while waiting or children:
            if deadline is not None and time.monotonic() > deadline:
                waiting.clear()
            while waiting and len(children) < room:
                job = waiting.pop()
                if (fault := doomed.fault_of(job, plans[job][1])) is not None:
                    reason = f"not started: it would fail as two others did ({fault.kind} in {fault.place})"
                    yield Failure(job, reason, fault, started=False)
                    continue
                children.append(pool.start(job, plans[job][1]))
            for end in pool.wait(children, 0.5):
                job = end.child.job
                children.remove(end.child)
                if is_worth_another(end) and job not in again:
                    again.add(job)
                    waiting.append(job)
                else:
                    yield outcome_of(end, plans[job], doomed)
            watch(children)
    finally:
        pool.stop(children)


def finished_before(
    jobs: Sequence[Job], plans: dict[Job, tuple[int, Code]], doomed: Doomed
) -> tuple[list[Result], list[Job]]:
    """Returns the results that are there already, and the other jobs, the first one last; notes each job's steps and
    code in `plans`.
    """
    finished, waiting = list[Result](), list[Job]()
    for job in jobs:
        plan = job.plan()
        plans[job] = plan.steps, plan.code
        done = result_of(job, plan.steps)
        if done is None:
            waiting.append(job)
        else:
            check_same(job, plan)
            doomed.passed(job, plan.code)
            finished.append(done)
    return finished, waiting[::-1]


def outcome_of(end: Ended, plan: tuple[int, Code], doomed: Doomed) -> Result | Failure:
    """Returns the result of a process that has ended, or how it failed; notes which."""
    job, (steps, code) = end.child.job, plan
    result = None if end.reason else result_of(job, steps)
    if result is not None:
        doomed.passed(job, code)
        return result
    if end.fault is not None:
        doomed.failed(job, end.fault)
    return Failure(job, end.reason or "it ended early", end.fault)


@dataclass
class Doomed:
    """Which jobs would fail as others did: after two equal failures in code, those of the same arm, and those that use
    the same file, unless a job of that arm or with that file has ended well.
    """

    faults: dict[Fault, list[Job]] = field(default_factory=dict)
    arms: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)

    def passed(self, job: Job, code: Code) -> None:
        """Notes a job that has ended well."""
        self.arms.add(job.arm)
        self.files |= files_of(code)

    def failed(self, job: Job, fault: Fault) -> None:
        """Notes a job that failed in code."""
        self.faults.setdefault(fault, []).append(job)

    def fault_of(self, job: Job, code: Code) -> Fault | None:
        """Returns the fault that a job would have; None if it may end well."""
        for fault, failed in self.faults.items():
            is_same = job.arm in {one.arm for one in failed} and job.arm not in self.arms
            if len(failed) > 1 and (is_same or fault.file in files_of(code) - self.files):
                return fault
        return None


def files_of(code: Code) -> set[str]:
    """Returns the paths of the files of own code that comes by file."""
    folders = {source: Path(source).resolve().parent for source in code if source.endswith(".py")}
    return {str(folder / name) for source, folder in folders.items() for name in code[source]}


def is_worth_another(end: Ended) -> bool:
    """Returns whether a job's process died and left a checkpoint to resume from."""
    return end.died and bool(store.saved_steps(end.child.job.folder / "checkpoints"))


def check_same(job: Job, plan: Plan) -> None:
    """Refuses a folder whose run has other settings."""
    from assay.runs.config import read_config

    if read_config(job.folder / "config.json")["fingerprint"] != plan.config()["fingerprint"]:
        raise AssayError(f"{job.folder} holds a run with other settings. Choose another --out, or remove the folder.")
