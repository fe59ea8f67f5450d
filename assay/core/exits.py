"""How a user's function may end its process: not by os._exit, and in any case when it never lets go; and how whoever
waits for one hears that the run is to stop.

os._exit ends a process without a word and with the status of a success. A function that holds the interpreter (a power
of huge numbers, a regular expression that backtracks) can be stopped by no thread of Python: after its time the process
ends with status 1 and the line at which it was.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

OWN = threading.local()
"""`OWN.process` is the process in which this thread runs a user's function."""
LEAVE: Callable[[int], NoReturn] = os._exit
GRACE, LONGEST = 5.0, 1e6
"""Seconds after its time until a function that holds the interpreter ends the process; longer times are not watched."""
ARMED = threading.Lock()
"""Held while a call is watched: a process has one such clock."""
STDERR = 2
RECEIVED: list[float] = []
"""When the stop signals were received (monotonic s) that the runs of this process have not yet answered."""
STOP_GRACE = 1.0
"""Seconds that a call of own code may still take after a stop signal."""


def give_up_if_stopped() -> None:
    """Raises KeyboardInterrupt if a stop signal was received more than `STOP_GRACE` seconds ago: who waits for own code
    gives up the step, and the run ends as of its last checkpoint.
    """
    if RECEIVED and time.monotonic() - RECEIVED[0] > STOP_GRACE:
        raise KeyboardInterrupt


def leave(status: int) -> NoReturn:
    """Ends the process; raises SystemExit in a user's function, except in a process that the function has forked."""
    if vars(OWN).get("process") == os.getpid():
        raise SystemExit(status)
    LEAVE(status)


@contextmanager
def kept_alive() -> Iterator[None]:
    """Makes os._exit an exception in the block, in this thread alone."""
    os._exit = leave
    before = vars(OWN).get("process")
    OWN.process = os.getpid()
    try:
        yield
    finally:
        OWN.process = before


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Ends the process with status 1, after printing the line of every thread, if the block takes `GRACE` seconds
    longer than `seconds`: whoever waits for it with a time limit could not wake up. Of blocks side by side, the first
    is watched.
    """
    is_ours = seconds < LONGEST and ARMED.acquire(blocking=False)
    if is_ours:
        faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=STDERR)
    try:
        yield
    finally:
        if is_ours:
            faulthandler.cancel_dump_traceback_later()
            ARMED.release()
