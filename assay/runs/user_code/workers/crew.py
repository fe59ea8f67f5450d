"""The workers of this process, started when own code is first called, and ended with the run or the process."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.runs.user_code.workers.process import Limits, Worker

LOG = "worker.log"
"""The file of a run folder that holds what own code prints."""
MOST = 4
"""Workers that share the objects and calls of one source, at most; also one for each core."""
CROWDED = 32
"""Objects and calls of a worker from which another one is started."""


class Crew:
    """The workers of one process, by source and limits. What they print goes to `log`, or to standard error."""

    def __init__(self, log: Path | None = None) -> None:
        self.pid, self.log = os.getpid(), log
        self.lock = threading.Lock()
        self.alone: dict[tuple[str, Limits], Worker] = {}
        self.shared: dict[tuple[str, Limits], list[Worker]] = {}

    def for_rows(self, source: str, limits: Limits) -> Worker:
        """Returns the worker of a source's functions that take all rows at once."""
        with self.lock:
            found = self.alone.get((source, limits))
            if found is None or not found.is_open:
                if found is not None:
                    found.close()
                found = self.alone[source, limits] = Worker(limits, self.log)
            return found

    def for_calls(self, source: str, limits: Limits) -> Worker:
        """Returns the least busy of the workers that a source's objects and tools share; starts another one if all
        have much to do.
        """
        with self.lock:
            known = self.shared.get((source, limits), [])
            for one in known:
                if one.is_over:
                    one.close()
                else:
                    one.end_if_idle()
            there = [one for one in known if not one.is_over]
            some = [one for one in there if one.is_open]
            best = min(some, key=lambda one: one.load_now, default=None)
            if best is None or (best.load_now >= CROWDED and len(some) < min(MOST, os.cpu_count() or 1)):
                best = Worker(limits, self.log)
                there.append(best)
            self.shared[source, limits] = there
            return best

    def close(self) -> None:
        """Ends all workers. In a forked process they are its parent's, and stay."""
        with self.lock:
            workers = [*self.alone.values(), *(one for some in self.shared.values() for one in some)]
            self.alone, self.shared = {}, {}
        if self.pid == os.getpid():
            for one in workers:
                with contextlib.suppress(OSError):
                    one.close()


CREWS = [Crew()]
"""The crew of this process, and above it that of the run that it is in."""


def current() -> Crew:
    """Returns the crew of the run or the process; a forked process has one of its own."""
    if CREWS[-1].pid != os.getpid():
        CREWS[:] = [Crew(CREWS[-1].log)]
    return CREWS[-1]


@contextmanager
def crew_of(folder: Path) -> Iterator[None]:
    """Gives a run workers of its own in the block, whose output goes to the run's folder; a phase of a run has those of
    the run.
    """
    if len(CREWS) > 1 and CREWS[-1].pid == os.getpid():
        yield
        return
    CREWS[-1].close()  # what was tried before the run
    crew = Crew(folder / LOG)
    CREWS.append(crew)
    try:
        yield
    finally:
        if crew in CREWS:
            CREWS.remove(crew)
        crew.close()


def close_all() -> None:
    """Ends the workers of this process."""
    for crew in CREWS:
        crew.close()


atexit.register(close_all)
