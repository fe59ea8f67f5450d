"""Where an exception comes from: file and line of a user's code, which a sentence names in the place of a traceback."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.core.errors import AssayError

STAMP = "__assay_code__"
"""Name in a module that was loaded as own code: its source and the digests of its files."""
TRACEBACK = "traceback.txt"
"""The file of a run folder that holds the traceback of its last error in code."""
PACKAGE = str(Path(__file__).resolve().parents[1])
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
NO_FILE = ("<frozen", "<string>", "<__array_function__")
"""Beginnings of the file names of code that stands in no file of the user's: imports, generated functions."""


@dataclass(frozen=True)
class Fault:
    """An exception by its type and place. Two that are equal are the same mistake."""

    kind: str
    file: str
    line: int

    @property
    def place(self) -> str:
        """The place in words; the file relative to the working folder if it is inside."""
        return f"{shown_file(self.file)}, line {self.line}"


class InWorker(Exception):
    """The cause of an error that was raised in another process: its traceback as text, and its place in a user's code
    if it has one.
    """

    def __init__(self, text: str, fault: Fault | None) -> None:
        super().__init__(f"in a worker process:\n{text}")
        self.fault = fault


def shown_file(file: str) -> str:
    """Returns a file's path, relative to the working folder if it is inside."""
    here = f"{os.getcwd()}{os.sep}"
    return file.removeprefix(here)


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception, then its causes, each once: they may be a ring, where one was raised again from what it had
    caused. What it only happened beside (`from None`) is left out.
    """
    seen: BaseException | None = error
    known: set[int] = set()
    while seen is not None and id(seen) not in known:
        known.add(id(seen))
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def own_fault(error: BaseException) -> Fault | None:
    """Returns type and place of an exception in a user's code: the innermost frame of a file that belongs neither to
    this package nor to a library, of the deepest cause that has one; None if there is no such frame.

    A file of an installed package is the user's if a run has loaded it as own code. Errors of syntax have no frame of
    their own: their file and line are those of the mistake.
    """
    found = None
    for one in chain_of(error):
        if isinstance(one, InWorker) and one.fault is not None:
            found = one.fault
        for frame, line in traceback.walk_tb(one.__traceback__):
            file = frame.f_code.co_filename
            if STAMP in frame.f_globals or is_own(file):
                found = Fault(type(one).__name__, file, line)
        if isinstance(one, SyntaxError) and one.filename and is_own(one.filename):
            found = Fault(type(one).__name__, one.filename, one.lineno or 1)
    return found


def is_own(file: str) -> bool:
    """Returns whether a file belongs neither to this package nor to an installed library."""
    inside = any(file.startswith(f"{folder}{os.sep}") for folder in (PACKAGE, *LIBRARIES))
    return not inside and not file.startswith(NO_FILE)


def any_fault(error: BaseException) -> Fault | None:
    """Returns the fault in a user's code, or else where an exception that is no AssayError was raised; None for an
    AssayError outside of a user's code, which says by itself what is wrong.
    """
    found = own_fault(error)
    if found is not None or isinstance(error, AssayError):
        return found
    frames = list(traceback.walk_tb(error.__traceback__))
    return Fault(type(error).__name__, frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else None


def at_place(error: BaseException) -> str:
    """Returns " (FILE, line N)" of the place in a user's code, or ""."""
    found = own_fault(error)
    return "" if found is None else f" ({found.place})"


def sentence(error: BaseException, *, notes: bool = True) -> str:
    """Returns an exception with its place in one line, followed by its notes."""
    found = any_fault(error)
    place = "" if found is None else f"{found.place}: "
    what = str(error) if isinstance(error, AssayError) else f"{place}{error_name(error)}"
    more: list[str] = getattr(error, "__notes__", []) if notes else []
    return " ".join([*(f"{text.rstrip('.')}." for text in (what, *more)[:-1]), (what, *more)[-1]])


def error_name(error: BaseException) -> str:
    """Returns type and text of an exception in one line."""
    try:
        text = " ".join(str(error).split())
    except Exception as another:  # its own __str__ is at fault
        text = f"its text raises {type(another).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether numpy or torch ran out of memory; torch has no exception type for it on the CPU."""
    words = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)
