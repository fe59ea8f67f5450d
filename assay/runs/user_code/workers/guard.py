"""The guard of a worker: starts it, keeps it within its limits, and ends it with every process that it has started.

It stands between the trainer and the worker and belongs to neither: processes that lose their parent become its own
(PR_SET_CHILD_SUBREAPER), and when the trainer is gone, killed or not, it kills them all. Run by its path, it imports
nothing but Python's own modules, and a worker starts in the time of one interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

TICK = 0.05
"""Seconds between looks at memory and processes."""
PATIENCE = 5.0
"""Seconds in which killed processes must be gone: the kernel frees their memory first."""
MOST_PROCESSES = 256
LOG_BYTES = 1 << 20
"""Size of the log; a longer one keeps its last half."""
CHILD_SUBREAPER, PARENT_DEATH_SIGNAL = 36, 1
PAGE = os.sysconf("SC_PAGE_SIZE")
IS_LINUX = sys.platform == "linux"


def set_process(option: int, value: int) -> None:
    """Sets an attribute of this process (prctl); nothing to do on other systems than Linux."""
    if IS_LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# ---------------------------------------------------------------------------------------------------- processes
def children(pid: int) -> Iterator[int]:
    """Yields the children of a process, of all its threads."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return
    for thread in threads:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
            yield from map(int, file.read().split())


def descendants(pid: int) -> list[int]:
    """Returns all processes below one."""
    found, todo = list[int](), [pid]
    while todo:
        below = list(children(todo.pop()))
        found += below
        todo += below
    return found


def resident(pids: list[int], most: int) -> int:
    """Returns the bytes of memory of processes; pages that several share count once if that decides about `most`."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:
            total += int(file.read().split()[1]) * PAGE
    if total <= most or len(pids) == 1:
        return total
    return sum(map(proportional, pids))


def proportional(pid: int) -> int:
    """Returns the bytes of a process, with shared pages divided by the number of processes that share them."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return 0


def reaped(worker: int) -> int | None:
    """Reaps processes that have ended; returns the status of the worker if it is one of them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == worker:
                status = os.waitstatus_to_exitcode(ended[1])
    return status


def end_all(worker: int) -> None:
    """Kills everything below this process. All are stopped first: what forks faster than it is killed would escape."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in descendants(os.getpid()) if IS_LINUX else [-worker]:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        reaped(worker)
        if not (IS_LINUX and descendants(os.getpid())):
            return
        time.sleep(0.005)


# ---------------------------------------------------------------------------------------------------- output
class WorkerLog:
    """What a worker prints, in a file that keeps at most `LOG_BYTES`; without a file it goes to standard error."""

    def __init__(self, path: str) -> None:
        self.path, self.written = path, 0

    def write(self, text: bytes) -> None:
        """Adds text. A disk that is full, or a folder that is gone, loses it."""
        if not text:
            return
        with contextlib.suppress(OSError):
            if not self.path:
                os.write(2, text[: max(0, LOG_BYTES - self.written)])
                self.written += len(text)
                return
            with open(self.path, "ab+") as file:
                file.write(text)
                if file.tell() > LOG_BYTES:
                    file.seek(-LOG_BYTES // 2, os.SEEK_END)
                    kept = file.read()
                    file.truncate(0)
                    file.write(b"[cut]\n" + kept)


# ---------------------------------------------------------------------------------------------------- guarding
def begin_worker(told: dict[str, Any], output: int, folder: str) -> None:
    """Becomes the worker, in the forked process: sets its limits, and serves until its requests end."""
    os.setpgid(0, 0)  # a function that kills its own group does not kill the guard
    set_process(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    for stream in (1, 2):
        os.dup2(output, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = told["file_bytes"] if hard == resource.RLIM_INFINITY else min(hard, told["file_bytes"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # of all processes, the kernel ends this one first
    os.environ["TMPDIR"] = folder
    sys.path[:] = told["path"]
    from assay.runs.user_code.workers.serving import serve

    serve(told["requests"], told["answers"])


def watched(told: dict[str, Any], worker: int, output: int) -> dict[str, Any]:
    """Watches the worker until it ends, breaks a limit, or the trainer lets go of it or is gone; returns which."""
    log, open_files = WorkerLog(told["log"]), [told["control"], output]
    while True:
        ready = select.select(open_files, [], [], TICK)[0]
        if told["control"] in ready or os.getppid() != told["parent"]:
            return {"how": "released"}
        if output in ready:
            said = os.read(output, 1 << 16)
            log.write(said)
            open_files = open_files if said else open_files[:1]
        status = reaped(worker)
        if status is not None:
            return {"how": "ended", "status": status}
        if IS_LINUX:
            pids = descendants(os.getpid())
            if len(pids) > MOST_PROCESSES:
                return {"how": "processes", "most": MOST_PROCESSES}
            if resident(pids, told["memory_bytes"]) > told["memory_bytes"]:
                return {"how": "memory", "bytes": told["memory_bytes"]}


def drained(output: int, path: str) -> None:
    """Writes down what the worker had printed before it ended."""
    os.set_blocking(output, False)
    with contextlib.suppress(OSError):
        WorkerLog(path).write(os.read(output, 1 << 16))


def main() -> None:
    """Guards one worker. The only argument is JSON: descriptors, limits, the trainer's process and search path."""
    told = json.loads(sys.argv[1])
    set_process(CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the trainer answers them, and then closes `control`
    folder = told["folder"]
    output, theirs = os.pipe()
    worker = os.fork()
    if not worker:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        for one in (output, told["control"], told["status"]):
            os.close(one)
        begin_worker(told, theirs, folder)
        os._exit(0)
    for one in (theirs, told["requests"], told["answers"]):
        os.close(one)
    end = {"how": "released"}
    try:
        end = watched(told, worker, output)
    finally:
        end_all(worker)
        drained(output, told["log"])
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # the trainer may be gone
            os.write(told["status"], json.dumps(end).encode())


if __name__ == "__main__":
    main()
