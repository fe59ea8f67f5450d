"""Where jobs run: a pool starts them, waits for those that end, and stops them. `Processes` is this machine.

The state of a run is in its folder only, so a pool keeps nothing but handles.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import pkgutil
import signal
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import assay.methods
from assay.core.errors import DataWarning
from assay.core.faults import TRACEBACK, Fault, any_fault, sentence
from assay.core.recipe import Recipe
from assay.runs.plan import Plan, make_plan
from assay.runs.user_code.consent import Code, own_sources
from assay.runs.user_code.loading import load

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


@dataclass(eq=False)
class Child:
    """A running job, and when it was started (monotonic s)."""

    job: Job
    started: float


@dataclass(frozen=True)
class Ended:
    """The end of a job: "" or the error, whether its process died without an answer, and where code failed."""

    child: Child
    reason: str
    died: bool = False
    fault: Fault | None = None


class Pool(ABC):
    """Runs jobs in processes of their own, on this machine or others that share the run folders.

    Laws: a job ends once; `wait` returns after `timeout` seconds at the latest; after `stop` none of the jobs runs.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of jobs to run at a time unless the user says otherwise."""

    @abstractmethod
    def start(self, job: Job, code: Code) -> Child:
        """Starts a job whose plan runs this own code."""

    @abstractmethod
    def wait(self, children: Sequence[Any], timeout: float) -> list[Ended]:
        """Returns those of its children that have ended, after `timeout` seconds at the latest."""

    @abstractmethod
    def stop(self, children: Sequence[Any]) -> None:
        """Tells all to save and stop; kills those that do not within `PATIENCE`."""


def pickled(job: Job) -> tuple[tuple[str, ...], bytes]:
    """Returns a job for another process: the own code to load first, and the bytes."""
    return tuple(own_sources(job.method)), pickle.dumps(job)


def unpickled(sources: Sequence[str], sent: bytes) -> Job:
    """Returns the job. Own code that its recipe is made of is loaded first, so that its classes are there."""
    for source in sources:
        load(source)
    job: Job = pickle.loads(sent)
    return job


# ---------------------------------------------------------------------------------------------------- one process
def work(sources: Sequence[str], sent: bytes, parent: Connection) -> None:
    """Runs the job in the child process, then sends "" or the error, and where code failed, on the pipe."""
    import torch

    from assay.runs.progress import Mode
    from assay.runs.run import execute

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DataWarning)  # said where the run was planned
    threading.Thread(target=stop_with, args=(parent,), daemon=True).start()
    try:
        job = unpickled(sources, sent)
        execute(job.plan(), job.folder, mode=Mode.SILENT)
    except Exception as error:
        parent.send((reason_of(error), any_fault(error)))
    else:
        parent.send(("", None))


def reason_of(error: Exception) -> str:
    """Returns why a job failed; of notes of the error only the place of its traceback: the runs of a comparison are
    resumed by its command.
    """
    kept = [note for note in getattr(error, "__notes__", ()) if TRACEBACK in note]
    return " ".join([f"{sentence(error, notes=False).rstrip('.')}.", *kept]) if kept else sentence(error, notes=False)


def stop_with(parent: Connection) -> None:
    """Stops this process when the other end of the pipe closes: an orphan would keep its folder locked."""
    try:
        parent.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


def ended(process: Any, seconds: float = PATIENCE) -> None:
    """Waits for the end of a process; one that takes longer is killed."""
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join(PATIENCE)


@dataclass(eq=False)
class Forked(Child):
    """A job in a process of this machine."""

    process: Any
    pipe: Connection

    def ended(self) -> Ended:
        """Waits for the end of a process that has answered or died."""
        try:
            said: tuple[str, Fault | None] | None = self.pipe.recv()
        except (EOFError, OSError):
            said = None
        ended(self.process)
        self.pipe.close()
        if said is not None:
            return Ended(self, said[0], fault=said[1])
        code = self.process.exitcode
        cause = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        return Ended(self, f"the process died ({cause}): out of memory, or killed from outside", died=True)


class Processes(Pool):
    """Every job is a process of this machine, forked from a server that has imported everything."""

    @property
    def size(self) -> int:
        """One job for each core."""
        return os.cpu_count() or 1

    def start(self, job: Job, code: Code) -> Forked:
        """Forks a process for the job; it reads the same files, so `code` is not compared."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(preloaded())
        ours, theirs = context.Pipe()
        name = f"{job.arm} on {job.task}, seed {job.seed}"
        process = context.Process(target=work, args=(*pickled(job), theirs), name=name)
        with without_script():
            process.start()
        theirs.close()
        return Forked(job, time.monotonic(), process, ours)

    def wait(self, children: Sequence[Forked], timeout: float) -> list[Ended]:
        """Waits for an answer or the end of a pipe."""
        ready = wait([child.pipe for child in children], timeout=timeout)
        return [child.ended() for child in children if child.pipe in ready]

    def stop(self, children: Sequence[Forked]) -> None:
        """Sends SIGTERM, then SIGKILL."""
        for child in children:
            child.process.terminate()
        until = time.monotonic() + PATIENCE
        for child in children:
            ended(child.process, max(0.1, until - time.monotonic()))
            child.pipe.close()


@contextmanager
def without_script() -> Iterator[None]:
    """Lets processes start without running the user's script again, which they would do to find what it defines: a
    script without `if __name__ == "__main__"` would train once more in each. Jobs need nothing of it, since objects of
    a script run in its own process.
    """
    main: dict[str, Any] = vars(sys.modules["__main__"])
    kept: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(kept))
    try:
        yield
    finally:
        main.update(kept)


def preloaded() -> list[str]:
    """Returns the modules that the server imports once, so that no run has to: the loop, all methods, figures."""
    methods = [f"{assay.methods.__name__}.{info.name}" for info in pkgutil.iter_modules(assay.methods.__path__)]
    return ["assay.runs.run", "matplotlib.figure", *methods]  # one that is not installed is left out
