"""The sandbox of this machine: jobs go to a supervisor in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Any

from assay.sandbox.values import Inputs, Job, Limits, Result, SandboxFault, Stdin, job_as_json, result_of

MARGIN = 120.0
"""Seconds that a job may take beyond its own limit, once it has begun, before the supervisor counts as lost."""


class LocalSandbox:
    """Runs programs in boxes on this machine, at most `num_slots` at a time; may be used from several threads."""

    def __init__(self, kind: str = "bubblewrap", num_slots: int = 32, without: Sequence[str] = ()) -> None:
        self.kind, self.num_slots, self.without = kind, num_slots, tuple(without)
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0
        self.last = 0
        self.futures: dict[int, Future[Result]] = {}
        self.answers: dict[int, Any] = {}

    # ------------------------------------------------------------------------------------------------ jobs
    def run(self, code: str, inputs: Inputs = Stdin(), limits: Limits = Limits()) -> Result:
        """Runs a program with inputs, within limits."""
        return self.run_all([Job(code, inputs, limits)])[0]

    def run_all(self, jobs: Sequence[Job]) -> list[Result]:
        """Runs several programs, each in a box of its own; the results are in the order of the jobs."""
        futures = [self.submit(job_as_json(job))[1] for job in jobs]
        longest = max((job.limits.seconds for job in jobs), default=0.0)
        wait = MARGIN + (longest + 1.0) * (1 + 2 * len(jobs) // self.num_slots)
        return [self.awaited(future, wait) for future in futures]

    def awaited(self, future: Future[Result], seconds: float) -> Result:
        """Returns a result; a fault of the sandbox if it does not come."""
        try:
            return future.result(timeout=seconds)
        except Late:
            self.close()
            return SandboxFault(f"the supervisor of the sandbox did not answer within {seconds:.0f} s")

    def submit(self, plain: dict[str, Any], hears: Any = None) -> tuple[int, Future[Result]]:
        """Sends a job to the supervisor, which is started if it does not run."""
        future: Future[Result] = Future()
        with self.lock:
            if self.process is None or self.process.poll() is not None or self.owner != os.getpid():
                if self.process is not None and self.owner == os.getpid():
                    self.lost(self.process)  # its reader may not have told those who wait yet
                self.start()
            self.last += 1
            key = self.last
            self.futures[key] = future
            if hears is not None:
                self.answers[key] = hears
            self.send({**plain, "id": key})
        return key, future

    def send(self, message: dict[str, Any]) -> None:
        """Writes a message to the supervisor; if it has ended, its reader says so."""
        if self.process is None:  # closed: those who wait were told
            return
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self.lost(self.process)

    # ------------------------------------------------------------------------------------------------ the process
    def start(self) -> None:
        """Starts the supervisor, with nothing of this process's environment."""
        root = Path(__file__).resolve().parents[2]
        given = f"{self.kind!r}, {self.num_slots}, {self.without!r}"
        code = (
            f"import sys; sys.path.insert(0, {str(root)!r})\nfrom assay.sandbox.supervisor import main\nmain({given})"
        )
        kept = dict(os.environ) if "environment" in self.without else {"PATH": "/usr/bin:/bin"}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept,
            cwd="/",
            start_new_session=True,
        )
        self.owner, self.futures, self.answers = os.getpid(), {}, {}
        threading.Thread(target=self.listen, args=(self.process,), daemon=True).start()

    def listen(self, process: subprocess.Popen[bytes]) -> None:
        """Passes results on until the supervisor ends."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.hear(json.loads(line))
        process.wait(timeout=MARGIN)
        with self.lock:
            self.lost(process)

    def hear(self, plain: dict[str, Any]) -> None:
        """Passes one message of the supervisor on: an answer of a session, or the result of a job."""
        key, is_last = plain.pop("id"), "answer" not in plain
        with self.lock:
            future = self.futures.pop(key, None) if is_last else None
            hears = self.answers.pop(key, None) if is_last else self.answers.get(key)
        result = result_of(plain) if is_last else plain["answer"]
        if hears is not None:
            hears.put(result)
        if future is not None:
            future.set_result(result)

    def lost(self, process: subprocess.Popen[bytes]) -> None:
        """Lets go of a supervisor that has ended, and of the jobs that wait for it."""
        if process is self.process:
            discard(process)
            self.fail()

    def fail(self) -> None:
        """Gives every job that waits a fault of the sandbox."""
        fault = SandboxFault("the supervisor of the sandbox has ended")
        for key in list(self.futures):
            self.futures.pop(key).set_result(fault)
        for key in list(self.answers):
            self.answers.pop(key).put(fault)

    def close(self) -> None:
        """Ends the supervisor and all boxes; jobs that wait in other threads get a fault of the sandbox."""
        if self.owner != os.getpid():  # in a forked process it is its parent's
            return
        with self.lock:
            process, self.process = self.process, None
            if process is None:
                return
            discard(process)
            self.fail()
        try:
            process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=5.0)


def discard(process: subprocess.Popen[bytes]) -> None:
    """Closes the way to a supervisor, which ends it; what could not be sent is dropped."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
