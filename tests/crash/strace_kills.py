"""The same kills as in kill_points, struck by the kernel: strace injects SIGKILL at every mutating system call.

    python -m tests.crash.strace_kills [folder]

Needs strace and the right to trace. Each case is a fork of this warm process that stops itself until strace holds it.
Run by hand, as a check that the Python harness misses no system call. Prints one JSON line.
"""

import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from assay.core import store
from tests.crash.kill_points import changes, check_after
from tests.crash.scenarios import CHUNK, SCENARIOS, Scenario

SYSCALLS = ("mkdir", "openat", "write", "pwrite64", "writev", "fsync", "fdatasync", "rename", "renameat", "renameat2",
            "unlink", "unlinkat", "rmdir", "ftruncate", "fallocate", "link", "symlink", "fchmod")  # fmt: skip


def stopped_child(scenario: Scenario, folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        scenario.act(folder)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    return pid


def traced(scenario: Scenario, folder: Path, log: Path, *inject: str) -> tuple[int, list[str]]:
    """How the child ended under strace, and the system calls it made."""
    pid = stopped_child(scenario, folder)
    arguments = ["strace", "-o", str(log), "-e", f"trace={','.join(SYSCALLS)}", *inject, "-p", str(pid)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as tracer:
        deadline = time.monotonic() + 20
        while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text() and time.monotonic() < deadline:
            time.sleep(0.002)
        os.kill(pid, signal.SIGCONT)
        end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        tracer.wait()
    return end, re.findall(r"^(\w+)\(", log.read_text(), re.MULTILINE)


def enumerated(name: str, scenario: Scenario, base: Path) -> dict[str, Any]:
    """Every kill of one scenario; each failure with the place where it happened."""
    template, folder, log = base / "template", base / "run" / "checkpoints", base / "log"
    scenario.prepare(template)

    def fresh() -> None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir()
        if template.exists():
            shutil.copytree(template, folder)

    fresh()
    routed = collections.Counter(mutation.name for mutation in changes(scenario, folder))
    fresh()
    end, calls = traced(scenario, folder, log)
    assert end == 0, f"the child ended with {end} without a kill"
    counts = collections.Counter(calls)
    failures, struck = [], 0
    for call, number in [(call, number) for call, count in counts.items() for number in range(1, count + 1)]:
        fresh()
        try:
            end, _ = traced(scenario, folder, log, "-e", f"inject={call}:signal=KILL:when={number}")
            assert end == -signal.SIGKILL, f"the child ended with {end}, not by the kill"
            check_after(scenario, folder, {scenario.previous, scenario.tag})
            struck += 1
        except (AssertionError, store.CheckpointError, OSError) as error:
            failures.append(f"{name}: {call} number {number}: {error}")
    return {"calls": dict(counts), "routed": dict(routed), "recovered": struck, "failures": failures}


def main() -> None:
    """Every scenario, in a folder on the disk."""
    torch.set_num_threads(1)
    store.CHUNK = CHUNK
    results = {}
    for name, scenario in SCENARIOS.items():
        with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
            results[name] = enumerated(name, scenario, Path(scratch))
    total = sum(sum(result["calls"].values()) for result in results.values())
    recovered = sum(result["recovered"] for result in results.values())
    print(json.dumps({"recovered": recovered, "total": total, "scenarios": results}))


if __name__ == "__main__":
    main()
