"""The lock of a run folder, into which one process at a time may save.

On one machine the kernel knows who holds it (flock), also when a process was killed. Not every shared disk tells the
machines of each other's locks, so the file names the machine, and its time is a heartbeat: a lock of another machine,
or of an earlier boot of this one, is held while the last beat is younger than `SILENCE`. A lock that was released is
empty.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from assay.core.errors import AssayError

LOCK = "run.lock"
PROBE = 0.1
"""Seconds for which a lock is tried again: a reader that asks whether a folder is locked holds it for an instant."""
BEAT, SILENCE = 5.0, 60.0
"""Seconds between two heartbeats of a lock, and without one until a lock of another machine counts as abandoned."""
_held: set[int] = set()  # the lock files this process has open


class RunLocked(AssayError):
    """Another process holds the run folder; the message says which, since when, and what to do."""


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Locks the run folder, into which one process at a time may save; raises RunLocked if it is locked.
    The kernel releases it when the process dies for any reason; forked workers do not inherit it.
    """
    path = Path(folder) / LOCK
    os.makedirs(path.parent, exist_ok=True)
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    _held.add(descriptor)
    try:
        if not _locks(descriptor, PROBE) or _beats(descriptor, partial(_disk_time, path)):
            by = _text(descriptor) or "a process that has only just started"
            elsewhere = "" if _is_here(by) else f" If that is dead, the folder is free {SILENCE:.0f} s after its end."
            raise RunLocked(f"{folder} is in use by {by}. Wait for it, stop it, or choose another folder.{elsewhere}")
        os.ftruncate(descriptor, 0)
        since = f"since {time.strftime('%F %T')} (boot {_boot()})"
        os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename} {since}".encode())
        with _beating(descriptor):
            yield
    finally:
        _release_locks(descriptor)


@contextmanager
def _beating(descriptor: int) -> Iterator[None]:
    """Sets the time of the lock file every `BEAT` seconds, until the block ends; then empties the file."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT):
            with suppress(OSError):  # a shared disk that fails for a moment; the next beat may reach it
                os.utime(descriptor)

    thread = threading.Thread(target=beat, daemon=True, name="lock")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(SILENCE)
        if descriptor in _held:  # a forked child has closed it, and its number may be another file's
            with suppress(OSError):
                os.ftruncate(descriptor, 0)


def _boot() -> str:
    """Returns a number of this boot of this machine; its name where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename


def _text(descriptor: int) -> str:
    try:
        return os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
    except OSError:  # no plain file
        return ""


def _is_here(text: str) -> bool:
    """Returns whether a lock was written since this machine's boot; of versions without that, by its name."""
    found = re.fullmatch(r"process \d+ on (\S+) since [^(]*(?:\(boot (\S+)\))?", text)
    return found is None or (found[2] == _boot() if found[2] else found[1] == os.uname().nodename)


def _beats(descriptor: int, now: Callable[[], float]) -> bool:
    """Returns whether the lock is of another machine, or of an earlier boot, and its heartbeat is not too old."""
    return not _is_here(_text(descriptor)) and now() - os.fstat(descriptor).st_mtime < SILENCE


def _disk_time(path: Path) -> float:
    """Returns the time by the clock that dates files beside this one: on a shared disk not this machine's."""
    probe = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        os.unlink(probe)


def holder(folder: Path) -> str:
    """Returns the text of the folder's lock file, "" if it has none."""
    try:
        return (Path(folder) / LOCK).read_text(errors="replace")
    except OSError:
        return ""


def _locks(descriptor: int, patience: float) -> bool:
    """Takes the lock, or returns false if another process holds it for `patience` seconds: `is_locked` holds it for an
    instant.
    """
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(PROBE / 10)
        else:
            return True


def is_locked(folder: Path) -> bool:
    """Returns whether a process holds the run folder: asks the kernel, not the text of the file; for a process of
    another machine, whether the heartbeat is recent by this machine's clock.
    """
    try:
        descriptor = os.open(Path(folder) / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return _beats(descriptor, time.time)
    except OSError:
        return True
    finally:
        os.close(descriptor)


def open_own(path: Path, flags: int) -> int:
    """Opens a file of a run for writing; AssayError if it is a symbolic link or no plain file, so that a folder that
    was received from elsewhere cannot write outside itself.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise AssayError(f"{path} is a symbolic link or no plain file. Remove it; nothing was written") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise AssayError(f"{path} is not a plain file. Remove it; nothing was written")
    return descriptor


def _release_locks(*descriptors: int) -> None:
    """Closes these lock files, or all; skips those that a forked child has closed already."""
    for descriptor in set(descriptors or _held) & _held:
        _held.discard(descriptor)
        os.close(descriptor)


os.register_at_fork(after_in_child=_release_locks)
