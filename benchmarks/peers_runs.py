"""What the comparisons with control peers share: one held-out score, a clock, and a queue of runs with a time limit.

A run is a process with one thread that prints one JSON object. Finished runs are lines of a file, so that a command
that is given again does only what is missing. Nothing is started that is not expected to end before the limit.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import torch

from assay.engine.machine import describe_machine

Act: TypeAlias = Callable[[np.ndarray], np.ndarray]
EPISODES, FIRST_SEED = 10, 10_000
"""Held-out episodes of one evaluation; episode k is reset with seed FIRST_SEED + k. No run trains on these seeds."""
PACKAGES = ("gymnasium", "mujoco", "stable-baselines3", "d3rlpy")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
MARGIN, POLL = 1.15, 0.2
"""How much longer than expected a run may take and still be started; seconds between two looks at the processes."""


# ---------------------------------------------------------------------------------------------------- one run
def held_out(task: str, act: Act, episodes: int = EPISODES) -> list[float]:
    """Returns the raw returns of Gymnasium's own environment, played side by side with the deterministic policy."""
    import gymnasium

    environments = [gymnasium.make(task, disable_env_checker=True) for _ in range(episodes)]
    space = environments[0].action_space
    starts = [environment.reset(seed=FIRST_SEED + place)[0] for place, environment in enumerate(environments)]
    seen, returns, going = np.stack(starts).astype(np.float32), np.zeros(episodes), np.ones(episodes, bool)
    while going.any():
        actions = np.clip(act(seen), space.low, space.high)
        for place in going.nonzero()[0]:
            seen[place], reward, terminated, truncated, _ = environments[place].step(actions[place])
            returns[place] += float(reward)
            going[place] = not (terminated or truncated)
    for environment in environments:
        environment.close()
    return [float(one) for one in returns]


def acting(policy: Any, device: str = "cpu") -> Act:
    """Returns the mode of one of our policies, which is on `device`, as a function of arrays."""

    def act(observations: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            seen = torch.from_numpy(observations).to(device)
            found: np.ndarray = policy.act({"observation": seen}, None)[0].cpu().numpy()
        return found

    return act


@dataclass
class Clock:
    """Wall and cpu seconds of training alone, and the learning curve: it stands while the policy is evaluated."""

    task: str
    episodes: int = EPISODES
    wall: float = 0.0
    cpu: float = 0.0
    curve: list[tuple[int, float]] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = time.perf_counter(), time.process_time()

    def evaluate(self, act: Act, done: int) -> None:
        """Adds a point of the learning curve after `done` decisions or updates."""
        self.wall += time.perf_counter() - self.started[0]
        self.cpu += time.process_time() - self.started[1]
        self.returns = held_out(self.task, act, self.episodes)
        self.curve.append((done, statistics.mean(self.returns)))
        self.started = time.perf_counter(), time.process_time()

    def facts(self) -> dict[str, Any]:
        """Returns the numbers of this run."""
        return {
            "score": self.curve[-1][1],
            "curve": self.curve,
            "returns": self.returns,
            "seconds": self.wall,
            "cpu": self.cpu,
        }


# ---------------------------------------------------------------------------------------------------- many runs
@dataclass(frozen=True)
class Job:
    """A run by its key, what it is called among runs that take equally long, and the seconds expected for it."""

    key: str
    kind: str
    seconds: float


@dataclass
class Going:
    """A process that has been started."""

    job: Job
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]
    since: float

    def said(self) -> tuple[list[str], list[str]]:
        """Returns the lines of both outputs, and closes them."""
        found = []
        for stream in (self.out, self.err):
            stream.seek(0)
            found.append(stream.read().decode(errors="replace").strip().splitlines())
            stream.close()
        return found[0], found[1]


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the rows of a results file by their keys; a line that was cut off is left out."""
    rows = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "key" in row:
            rows[row["key"]] = row
    return rows


def versions() -> dict[str, Any]:
    """Returns the machine and the versions of the peers."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return describe_machine() | found


class Queue:
    """Runs jobs `at_once` at a time until all are done or `minutes` are over; appends their rows to a file."""

    def __init__(self, module: str, more: Sequence[str], out: Path, at_once: int, minutes: float) -> None:
        self.module, self.more, self.out, self.at_once = module, tuple(more), out, at_once
        self.begin, self.limit = time.monotonic(), 60.0 * minutes
        self.ratios: dict[str, list[float]] = {}
        self.failed: list[str] = []
        self.done = self.total = 0

    @property
    def now(self) -> float:
        """Returns the seconds since the start."""
        return time.monotonic() - self.begin

    def expected(self, job: Job) -> float:
        """Returns the seconds of a job, corrected by those of its kind that have ended, else by all that have."""
        every = [one for some in self.ratios.values() for one in some]
        known = self.ratios.get(job.kind) or every
        return job.seconds * (statistics.median(known) if known else 1.0)

    def fits(self, job: Job) -> bool:
        """Returns whether a job is expected to end in time if it is started now."""
        return self.now + MARGIN * self.expected(job) < self.limit

    def run(self, jobs: Iterable[Job]) -> None:
        """Runs what is not in the file yet, in order; leaves out what would not end in time."""
        known = finished(self.out)
        waiting = [job for job in jobs if job.key not in known]
        self.total, going = len(waiting), list[Going]()
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.write({"machine": versions()})
        while waiting or going:
            going = [one for one in going if not self.ended(one)]
            while len(going) < self.at_once and (job := next(filter(self.fits, waiting), None)):
                waiting.remove(job)
                going.append(self.start(job))
            if not going:
                break
            if self.now > self.limit:
                self.stop(going)
                break
            time.sleep(POLL)
        left = f"; not started for lack of time: {len(waiting)}" if waiting else ""
        print(f"{self.done} of {self.total} runs in {self.now:.0f} s, {len(self.failed)} failed{left}", flush=True)

    def start(self, job: Job) -> Going:
        """Starts the process of a job."""
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has ended
        words = [sys.executable, "-m", self.module, "--one", job.key, *self.more]
        environment = os.environ | ONE_THREAD | ({} if "cuda" in words else NO_GPU)
        process = subprocess.Popen(words, stdout=out, stderr=err, env=environment)
        return Going(job, process, out, err, time.monotonic())

    def ended(self, one: Going) -> bool:
        """Returns whether a process has ended; then its row is written."""
        if one.process.poll() is None:
            return False
        took = time.monotonic() - one.since
        said, why = one.said()
        if one.process.returncode or not said:
            self.failed.append(one.job.key)
            print(f"failed: {one.job.key}: {why[-1] if why else one.process.returncode}", flush=True)
            return True
        row = {"key": one.job.key, **json.loads(said[-1]), "took": round(took, 2)}
        self.write(row)
        self.ratios.setdefault(one.job.kind, []).append(took / one.job.seconds)
        self.done += 1
        place = f"[{self.now:4.0f} s] {self.done}/{self.total}"
        print(f"{place} {one.job.key}: {row['score']:.1f}, {took:.0f} s", flush=True)
        return True

    def stop(self, going: Sequence[Going]) -> None:
        """Ends the processes that are still there when the time is over."""
        for one in going:
            one.process.terminate()
            one.process.wait()
            one.said()
            print(f"stopped at the limit: {one.job.key}", flush=True)

    def write(self, row: dict[str, Any]) -> None:
        """Appends a line to the results."""
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
