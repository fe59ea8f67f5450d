"""Programs in processes of their own that are forked from a server with everything imported.

A process that imports torch and all methods takes three cpu-seconds before it does anything. Where a test is about what
a process does and not about how it starts, it is forked instead; it has its own streams, folder, environment and
signals, as a new interpreter would.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from assay.runs.pools import preloaded
from tests import sketched

COMMAND = "import sys; from assay.cli.main import main; sys.exit(main())"
"""The program of the command line."""


def serve() -> None:
    """Makes the server that processes of the tests are forked from import all there is, whichever test is the first to
    start it; its forks draw no pictures either.
    """
    everything = [*preloaded(), "assay.runs.distributed.worker_pool", "assay.runs.distributed.ranks", sketched.__name__]
    multiprocessing.set_forkserver_preload(everything)
    BaseContext.set_forkserver_preload = lambda context, names: None  # type: ignore[method-assign]


def run(program: str, words: Sequence[str], folder: str, environment: Mapping[str, str], ends: Sequence[Any]) -> None:
    """Is the process: takes the streams and runs the program as `python -c` would."""
    for place, end in enumerate(ends):
        os.dup2(end.detach(), place)
    sys.stdin, sys.stdout, sys.stderr = (open(place, mode) for place, mode in enumerate("rww"))  # noqa: SIM115
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # those of a background job ignore it
    sys.argv = ["-c", *words]
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})


class Process:
    """A forked program whose streams are files, unless `ends` has descriptors for all three."""

    def __init__(
        self,
        program: str,
        *words: str,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        ends: tuple[int, int, int] | None = None,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        self.written: tuple[str, str] | None = None
        self.files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115 - closed at the end of the process
        given = [Sent(end) for end in ends or [file.fileno() for file in self.files]]
        told = dict(os.environ if environment is None else environment)
        self.process = context.Process(target=run, args=(program, words, str(folder or Path.cwd()), told, given))
        self.process.start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self.process.pid is not None
        return self.process.pid

    def send_signal(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it, wherever it is."""
        self.process.kill()

    def poll(self) -> int | None:
        """Returns the exit code, minus the number of a signal that ended it; None while it runs."""
        return self.process.exitcode

    def ended(self, within: float = 120.0) -> tuple[int, str, str]:
        """Waits for the end; returns the exit code and what was written to stdout and stderr."""
        self.process.join(within)
        code = self.process.exitcode
        assert code is not None, f"no end within {within} s"
        if self.written is None:
            self.written = self.read(1), self.read(2)
            for file in self.files:
                file.close()
        return code, *self.written

    def read(self, place: int) -> str:
        """Returns what one of the files holds."""
        self.files[place].seek(0)
        return self.files[place].read().decode()


class Sent:
    """A descriptor that is duplicated for the child when the arguments of a process are pickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return (received, (DupFd(self.number),))


def received(end: Any) -> Any:
    """Returns the duplicate as it is."""
    return end
