"""One worker process as the trainer sees it: started with limits, asked by any thread, killed when a call overruns."""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from assay.core.calls import Overtime, OwnCodeError, Unanswered, overtime
from assay.core.errors import AssayError
from assay.core.exits import give_up_if_stopped
from assay.core.faults import Fault, InWorker
from assay.runs.user_code.workers import guard
from assay.runs.user_code.workers.frames import MOST_ANSWER, TICK, as_given, read_frame, write_frame
from assay.runs.user_code.workers.serving import ASSAY, OWN, Request

GIGABYTE = 1 << 30
LOADING = 120.0
"""Seconds in which a worker must have started, loaded own code, and read what it is sent."""
FINDING = 5.0
"""Seconds in which the row must be found on which a function has raised."""
PONG = 0.5
"""Seconds in which a worker answers that is not held by one of its calls."""
PIPE_BYTES = 1 << 20
SET_PIPE_SIZE = 1031
"""The command of fcntl on Linux."""


def half_of_memory() -> float:
    """Returns half of this machine's memory, in gigabytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIGABYTE / 2


@dataclass(frozen=True)
class Limits:
    """What a worker and all processes that it starts may use: gigabytes of `memory` together, and of one `file`."""

    memory: float = field(default_factory=half_of_memory)
    file: float = 0.5


class Lost(Unanswered):
    """A call whose worker ended, or broke a limit."""


@dataclass(eq=False)
class WorkerCall:
    """One call that is waited for: what to name it in errors, and what the worker has said."""

    what: str
    answered: threading.Event = field(default_factory=threading.Event)
    begun: float | None = None
    first: dict[str, Any] | None = None
    first_at: float = 0.0
    answer: dict[str, Any] | None = None


class Worker:
    """A worker process. `ask` may be called from any thread; `close` ends the process with all that it has started."""

    def __init__(self, limits: Limits, log: Path | None) -> None:
        self.limits = limits
        self.calls: dict[int, WorkerCall] = {}
        self.objects: set[int] = set()
        self.dropped: deque[int] = deque()
        """Objects that nothing refers to any more, which the worker is told of before its next call."""
        self.numbers, self.writing = count(1), threading.Lock()
        self.is_over = self.is_retired = False
        self.end: dict[str, Any] = {}
        theirs, self.requests = os.pipe()
        self.answers, theirs_too = os.pipe()
        control, self.control = os.pipe()
        self.status, status = os.pipe()
        os.set_blocking(self.requests, False)
        widen(self.requests)
        told = {
            "requests": theirs,
            "answers": theirs_too,
            "control": control,
            "status": status,
            "parent": os.getpid(),
            "log": "" if log is None else str(log.resolve()),
            "memory_bytes": int(limits.memory * GIGABYTE),
            "file_bytes": int(limits.file * GIGABYTE),
            "path": sys.path,
        }
        self.folder = told["folder"] = tempfile.mkdtemp(prefix="assay-worker-")
        passed = (theirs, theirs_too, control, status)
        self.process = subprocess.Popen(
            [sys.executable, guard.__file__, json.dumps(told)],
            stdin=subprocess.DEVNULL,
            pass_fds=passed,
            start_new_session=True,
        )
        for one in passed:
            os.close(one)
        self.loading: dict[str, threading.Lock] = {}
        self.loaded: set[str] = set()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    # ------------------------------------------------------------------------------------------------ answers
    def read(self) -> None:
        """Takes the answers of the worker until it ends, then how it ended; runs in a thread of its own."""
        try:
            while True:
                answer = json.loads(read_frame(self.answers, MOST_ANSWER))
                call = self.calls.get(answer["id"])
                if call is None:
                    continue
                if "begun" in answer:
                    call.begun = time.monotonic()
                elif "first" in answer:
                    call.first, call.first_at = answer["first"], time.monotonic()
                else:
                    call.answer = answer
                    call.answered.set()
        except (EOFError, OSError, ValueError, KeyError, TypeError):
            self.is_over = True
        if select.select([self.status], [], [], 2 * guard.PATIENCE)[0]:
            with contextlib.suppress(OSError, ValueError):
                self.end = json.loads(os.read(self.status, 1 << 16) or b"{}")
        for call in list(self.calls.values()):
            call.answered.set()

    def ended(self, what: str) -> Lost:
        """Returns the error of a call that the worker ended with."""
        how, limits = self.end.get("how"), self.limits
        if how == "memory":
            used = f"{what} used more than {limits.memory:.3g} GB of memory"
            return Lost(f"{used} (--worker-memory). Use less, or allow more")
        if how == "processes":
            return Lost(f"{what} started more than {self.end['most']} processes. Start fewer")
        if how == "ended" and self.end["status"] < 0:
            number = -self.end["status"]
            from_outside = ": out of memory, or killed from outside" if number == signal.SIGKILL else ""
            return Lost(f"{what} ended its process by signal {number} ({named_signal(number)}{from_outside})")
        if how == "ended":
            return Lost(f"{what} ended its process with exit status {self.end['status']}. Return instead")
        return Lost(f"{what} was in a worker process that was ended")

    # ------------------------------------------------------------------------------------------------ asking
    def ask(
        self,
        kind: str,
        source: str,
        files: Mapping[str, str],
        given: tuple[Any, ...],
        what: str,
        seconds: float,
        *,
        target: int = 0,
        alone: bool = False,
    ) -> Any:
        """Returns the answer to a call that may take `seconds` from when it begins.

        Unanswered if it takes longer or the worker ends; an exception of the function is raised with its traceback as
        text. KeyboardInterrupt if the run is to stop.
        """
        self.load(source, files, what)
        return self.called(kind, source, files, given, WorkerCall(what), seconds, target=target, alone=alone)

    def load(self, source: str, files: Mapping[str, str], what: str) -> None:
        """Makes the worker load own code, once; threads that need the same source wait."""
        lock = self.loading.setdefault(source, threading.Lock())
        if not lock.acquire(timeout=LOADING):
            raise overtime(f"loading {source}", LOADING)
        try:
            if source not in self.loaded:
                self.called("load", source, files, (), WorkerCall(f"loading {source} for {what}"), LOADING, alone=True)
                self.loaded.add(source)
        finally:
            lock.release()

    def called(
        self,
        kind: str,
        source: str,
        files: Mapping[str, str],
        given: tuple[Any, ...],
        call: WorkerCall,
        seconds: float,
        *,
        target: int = 0,
        alone: bool = False,
    ) -> Any:
        """Sends one request and waits for its answer."""
        try:
            arguments = pickle.dumps(given, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # whatever an object's own reduction raises
            told = f"{call.what} gets what cannot be sent to a worker process ({type(error).__name__}: {error})"
            raise AssayError(f"{told}. Use --in-process") from error
        number = next(self.numbers)
        self.calls[number] = call
        try:
            message = pickle.dumps(Request(number, kind, source, dict(files), target, alone, arguments))
            until = time.monotonic() + LOADING
            self.write(message, call, until)
            self.wait(call, seconds, until)
        finally:
            del self.calls[number]
            self.end_if_idle()
        return self.value(call)

    def write(self, message: bytes, call: WorkerCall, until: float) -> None:
        """Writes a request; gives up when the worker ends, the run stops, or the time of a start is over."""

        def check() -> None:
            give_up_if_stopped()
            if self.is_over:
                raise BrokenPipeError
            if time.monotonic() > until:
                raise overtime(call.what, LOADING)

        is_ours = is_broken = False
        try:
            while not (is_ours := self.writing.acquire(timeout=TICK)):
                check()
            while self.dropped and not self.is_over:
                drop = Request(0, "drop", "", {}, self.dropped.popleft(), False, b"")
                write_frame(self.requests, pickle.dumps(drop), check)
            if not self.is_over:
                write_frame(self.requests, message, check)
        except Overtime:  # half a message was written
            self.is_over = is_broken = True
            raise
        except OSError:  # the pipe is broken
            self.is_over = is_broken = True
            self.reader.join(PONG)  # it learns how the worker ended, unless that has not ended
        finally:
            if is_ours:
                self.writing.release()
            if is_broken:  # a worker that ends by itself is left to its guard, which says how it ended
                self.close()

    def wait(self, call: WorkerCall, seconds: float, until: float) -> None:
        """Waits for an answer; a call that overruns is ended, and a run that is to stop does not wait for it."""
        while not call.answered.wait(TICK if call.begun is None else min(TICK, max(0.001, left(call, seconds)))):
            now = time.monotonic()
            if self.is_over and not self.reader.is_alive():
                return
            give_up_if_stopped()
            if call.first is not None:
                if now - call.first_at > min(FINDING, seconds):
                    self.close()
                    return
            elif call.begun is not None and left(call, seconds) <= 0:
                self.overrun(call)
                raise overtime(call.what, seconds)
            elif call.begun is None and now > until:
                self.overrun(call)
                raise overtime(call.what, LOADING)

    def overrun(self, call: WorkerCall) -> None:
        """Ends a call that overruns. If other calls and objects share the worker and it still answers, it gets nothing
        more to do and ends when they have; else it is killed.
        """
        others = [one for one in self.calls.values() if one is not call]
        self.is_retired = True
        if not (others or self.objects) or not self.pings():
            self.close()

    def pings(self) -> bool:
        """Returns whether the worker answers: no call holds its interpreter."""
        number, call = next(self.numbers), WorkerCall("ping")
        self.calls[number] = call
        try:
            request = Request(number, "ping", "", {}, 0, False, b"")
            self.write(pickle.dumps(request), call, time.monotonic() + PONG)
            return call.answered.wait(PONG) and call.answer is not None
        except Overtime:
            return False
        finally:
            self.calls.pop(number, None)

    def value(self, call: WorkerCall) -> Any:
        """Returns the value of an answer; raises its error, or how the worker ended."""
        error = call.first if call.answer is None else call.answer.get("error")
        if error is not None:
            raise error_of(error, call.what)
        if call.answer is None:
            raise self.ended(call.what)
        return as_given(call.answer["value"])

    # ------------------------------------------------------------------------------------------------ objects
    def drop(self, target: int) -> None:
        """Frees an object with the next call. The garbage collector may call this at any line of any thread, also while
        that thread writes: it takes no lock and waits for nothing.
        """
        self.objects.discard(target)
        self.dropped.append(target)

    def end_if_idle(self) -> None:
        """Ends a worker that has overrun once the others that share it are done."""
        if self.is_retired and not self.calls and not self.objects:
            self.close()

    @property
    def load_now(self) -> int:
        """Returns how many calls and objects it has."""
        return len(self.calls) + len(self.objects)

    @property
    def is_open(self) -> bool:
        """Whether it takes further calls."""
        return not (self.is_over or self.is_retired)

    def close(self) -> None:
        """Kills the worker and everything that it has started, and waits until they are gone."""
        self.is_over = self.is_retired = True
        with self.writing:
            control, self.control = self.control, -1
        if control < 0:
            return
        os.close(control)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2 * guard.PATIENCE)
        self.process.kill()
        self.process.wait(guard.PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)  # of a guard that was killed
        self.reader.join(guard.PATIENCE)
        for one in (self.requests, self.answers, self.status):
            os.close(one)


def left(call: WorkerCall, seconds: float) -> float:
    """Returns the seconds that a call which has begun has left."""
    return seconds - (time.monotonic() - (call.begun or 0.0))


def widen(pipe: int) -> None:
    """Makes a pipe hold the rows of a usual call, so that they are written at once."""
    import fcntl

    with contextlib.suppress(OSError):  # a limit of the system, or not Linux
        fcntl.fcntl(pipe, SET_PIPE_SIZE, PIPE_BYTES)


def named_signal(number: int) -> str:
    """Returns the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of real time"


def error_of(told: Mapping[str, Any], what: str) -> Exception:
    """Returns the exception that a worker has told of, with its traceback as the cause."""
    fault = told.get("fault")
    cause = InWorker(str(told.get("traceback", "")), None if fault is None else Fault(*fault))
    text, kind, name = str(told["text"]), told["kind"], str(told["name"])
    makers: dict[str, Callable[[str], Exception]] = {OWN: OwnCodeError, ASSAY: AssayError, "unsendable": OwnCodeError}
    if kind == "unsendable":
        text = f"{what} {text}"
    error = makers[kind](text) if kind in makers else foreign(name, text)
    error.__cause__ = cause
    return error


def foreign(name: str, text: str) -> Exception:
    """Returns an exception by the name of its type: Python's own, or a new one."""
    known = getattr(builtins, name, None)
    kind = known if isinstance(known, type) and issubclass(known, Exception) else type(name, (Exception,), {})
    try:
        return kind(text)
    except TypeError:  # such as UnicodeDecodeError, which takes five arguments
        return type(name, (Exception,), {})(text)
