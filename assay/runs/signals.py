"""Stop signals: a flag for SIGTERM, SIGINT and SIGHUP, and the error of a stopped run."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.exits import RECEIVED
from assay.runs.user_code.addresses import PYTHON

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def resume_command(folder: str | Path, accept: bool = False) -> str:
    """Returns the shell command that resumes a run, or the run of a phase, with changed code if that is to be accepted;
    of a run that only this process can resume, with functions of a notebook or a recipe of its own, the call of Python.
    """
    while Path(folder).name.startswith("phase-") and (Path(folder).parent / "config.json").is_file():
        folder = Path(folder).parent
    path = Path(folder) / "config.json"
    found = json.loads(path.read_text()) if path.is_file() else {"method": ""}
    given = [word for word in found.get("code", {}) if word.startswith(PYTHON)]
    if found["method"] is None:
        return f"the same assay.train call with out='{folder}'"
    if given:
        names = ", ".join(word.removeprefix(PYTHON) for word in given)
        return f"assay.resume('{folder}', functions=[{names}]{', accept_changed_code=True' if accept else ''})"
    return shlex.join(["assay", "resume", str(folder), *(["--accept-changed-code"] if accept else [])])


class Stopped(AssayError):
    """The run was stopped by a signal (SIGTERM, Ctrl-C); its state is saved."""

    def __init__(self, folder: Path, number: int, how: str = "stopped and saved") -> None:
        super().__init__(f"{how}. Resume with: {resume_command(folder)}")
        self.number, self.how, self.exit_code = number, how, 128 + number


@contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Turns SIGTERM, SIGINT and SIGHUP into a flag; yields a function that returns the signal received, or 0.

    A signal that is ignored (SIGHUP under nohup) stays ignored. The second signal interrupts at once. Outside the main
    thread signals cannot be caught, and nothing is changed.
    """
    seen = [0]
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return

    def note(number: int, frame: Any) -> None:
        if seen[0]:
            raise KeyboardInterrupt
        seen[0] = number
        RECEIVED.append(time.monotonic())

    caught = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in caught}
    try:
        yield lambda: seen[0]
    finally:
        RECEIVED.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with(parent: Connection) -> None:
    """Ends this process when the other end of a pipe, which never writes, closes: it has nothing to save."""

    def watch() -> None:
        wait([parent])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
