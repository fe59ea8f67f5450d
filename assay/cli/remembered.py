"""Remembers what `list`, `show` and `diff` printed, so that the next time needs no torch.

What they print of built-in methods is a function of the package's files, the options and the terminal; of `show` the
blocks are kept before they are drawn, so that they suit every terminal. All is kept in the user's cache folder
(XDG_CACHE_HOME, else ~/.cache) under a digest of these three; any edit or installed package makes it another one. Own
code is never remembered: its file may import whatever it likes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

import rich

import assay
from assay.report.console import console
from assay.report.sheet import Block
from assay.runs.method_index import key_of

PACKAGE = Path(assay.__file__).parent
LIBRARIES = Path(rich.__file__).parents[1]
"""The folder that installing a package changes."""
READ = (".py", ".pyi", ".json")


def remembered(options: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Runs a command, or prints what it printed before if that cannot have changed. Returns the exit code."""
    if not is_pure(options):
        return run(options)
    path = place_of(options)
    if path.is_file():
        sys.stdout.write(path.read_text(encoding="utf-8"))
        return 0
    shown = sys.stdout
    sys.stdout = both = Both(shown)
    try:
        code = run(options)
    finally:
        sys.stdout = shown
    if code == 0:
        keep(path, both.getvalue())
    return code


def is_pure(options: argparse.Namespace) -> bool:
    """Returns whether a command prints facts of built-in methods and nothing else."""
    if options.command == "show":
        return bool(options.json) and options.task is None and is_built_in(options.name)
    if options.command == "diff":
        return is_built_in(options.name) and (options.other is None or is_built_in(options.other))
    return bool(options.command == "list")


def is_built_in(name: str) -> bool:
    """Returns whether a name is that of a built-in method or of a variant of one."""
    return key_of(name.partition(":")[0]) is not None


def place_of(options: argparse.Namespace) -> Path:
    """Returns the file that holds what a command with these options prints here."""
    out = console()
    where = [out.width, out.is_terminal, out.color_system, sys.stdout.encoding, sys.version]
    return place(f"{short_digest([vars(options), where])}.txt")


def kept_sheet(name: str, everything: bool, make: Callable[[str, bool], list[Block]]) -> list[Block]:
    """Returns the blocks that `assay show` draws of a built-in method, whatever the terminal: those that are kept, or
    those that `make` makes, which are then kept.
    """
    path = place(f"{short_digest([name, everything, sys.version])}.json")
    if path.is_file():
        found: list[Block] = json.loads(path.read_text(encoding="utf-8"))
        return found
    made = make(name, everything)
    keep(path, json.dumps(made))
    return made


def place(name: str) -> Path:
    """Returns the file of this name among those of the package as it is now."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "assay" / short_digest(str(PACKAGE)) / f"{state()}-{name}"


def short_digest(value: Any) -> str:
    """Returns sixteen hex digits of a value's JSON."""
    return sha256(json.dumps(value, default=str).encode()).hexdigest()[:16]


def state() -> str:
    """Returns sixteen hex digits of the package's files, by name, size and time, and of the installed packages."""
    return short_digest([sorted(files_below(str(PACKAGE))), LIBRARIES.stat().st_mtime_ns])


def files_below(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yields path, size and time of the package's files."""
    with os.scandir(folder) as found:
        for one in found:
            if one.is_dir():
                yield from files_below(one.path)
            elif one.name.endswith(READ):
                about = one.stat()
                yield one.path, about.st_size, about.st_mtime_ns


def keep(path: Path, text: str) -> None:
    """Writes a text whole, in the place of those of an older package; writes nothing where it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.iterdir():
            if old.name.partition("-")[0] != path.name.partition("-")[0]:
                old.unlink(missing_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        return  # a home that is read-only or full: the command has printed what it should


class Both(io.StringIO):
    """Keeps what is printed and passes it on to the output, whose kind it has."""

    def __init__(self, output: TextIO) -> None:
        super().__init__()
        self.output = output

    def write(self, text: str) -> int:
        """Writes to both."""
        self.output.write(text)
        return super().write(text)

    def flush(self) -> None:
        """Flushes the output."""
        self.output.flush()

    def isatty(self) -> bool:
        """Returns whether the output is a terminal."""
        return self.output.isatty()

    def fileno(self) -> int:
        """Returns the output's number."""
        return self.output.fileno()
