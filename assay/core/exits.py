"""os._exit in a user's function: an error of that function, not the silent end of the run with the status of a success.

It ends a process without a word, and nothing that runs in the same process can see it afterwards.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

OWN = threading.local()
"""`OWN.process` is the process in which this thread runs a user's function."""
LEAVE: Callable[[int], NoReturn] = os._exit


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
