"""Kill a save at every change it makes to the disk, and fail it at every change; see that nobody is needed afterwards.

    python -m tests.crash.kill_points [folder]

Each case is a fork of this warm process that sends itself SIGKILL before the k-th change, or halfway through the k-th
write; between two changes the disk does not move, so these are all the states a kill can leave. The same changes are
then made to fail, with ENOSPC or EIO, in this process. Prints one JSON line.
"""

import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from assay.core import store
from tests.crash.mutations import ORIGINAL, Handler, Mutation, intercepted
from tests.crash.scenarios import CHUNK, SCENARIOS, Scenario

SURVIVED, REPORTED, BROKEN = 0, 10, 11


def forked(work: Callable[[], int]) -> int:
    """Run the work in a child; its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = BROKEN
        try:
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def changes(scenario: Scenario, folder: Path) -> list[Mutation]:
    """The changes that the save makes, in order."""
    seen: list[Mutation] = []

    def note(mutation: Mutation, perform: Callable[[], Any]) -> Any:
        seen.append(mutation)
        return perform()

    with intercepted(note):
        scenario.act(folder)
    return seen


def at(index: int, strike: Handler) -> Handler:
    """Let every change pass but the one at this index."""
    count = iter(range(10**9))
    return lambda mutation, perform: strike(mutation, perform) if next(count) == index else perform()


def kill(mutation: Mutation, perform: Callable[[], Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tear(mutation: Mutation, perform: Callable[[], Any]) -> None:
    ORIGINAL["write"](mutation.descriptor, mutation.content[: len(mutation.content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def failure(code: int) -> Handler:
    def strike(mutation: Mutation, perform: Callable[[], Any]) -> None:
        raise OSError(code, os.strerror(code))

    return strike


def struck(scenario: Scenario, folder: Path, handle: Handler, is_kill: bool) -> int:
    """The end of a save under this handler: of a child if it is killed, else of a call."""

    def work() -> int:
        with intercepted(handle):
            try:
                scenario.act(folder)
            except store.CheckpointError as error:
                return REPORTED if str(folder) in str(error) else BROKEN
        return SURVIVED

    return forked(work) if is_kill else work()


def check_after(scenario: Scenario, folder: Path, allowed: set[int | None]) -> None:
    """The right state loads, nothing half done bears a step's name, the next save works and leaves nothing behind."""
    for _, _, path in store._listing(folder):
        store.load_path(path)
    tag = scenario.found(folder)
    assert tag in allowed, f"tag {tag} loads, expected one of {allowed}"
    scenario.put(folder, 9, 90)
    assert scenario.found(folder) == 90
    hidden = [name for name in os.listdir(folder) if name.startswith(".")]
    assert not hidden, f"left behind: {hidden}"


def enumerated(name: str, scenario: Scenario, base: Path) -> dict[str, Any]:
    """Every case of one scenario; each failure with the place where it happened."""
    template, folder = base / "template", base / "run" / "checkpoints"
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    scenario.prepare(template)

    def fresh() -> None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir()
        if template.exists():
            shutil.copytree(template, folder)

    fresh()
    trace = changes(scenario, folder)
    check_after(scenario, folder, {scenario.tag})
    cases: list[tuple[str, int, Handler, int]] = []
    for index, mutation in enumerate(trace):
        cases.append(("kill", index, kill, -signal.SIGKILL))
        if mutation.name == "write":
            cases.append(("tear", index, tear, -signal.SIGKILL))
        code = errno.ENOSPC if mutation.name in ("mkdir", "open", "write") else errno.EIO
        cases.append((errno.errorcode[code], index, failure(code), REPORTED))
    failures = []
    for kind, index, strike, expected in cases:
        fresh()
        where = f"{name}: {kind} at change {index} ({trace[index].name} {Path(trace[index].path).name})"
        try:
            end = struck(scenario, folder, at(index, strike), is_kill=expected == -signal.SIGKILL)
            assert end == expected, f"the child ended with {end}, expected {expected}"
            check_after(scenario, folder, {scenario.previous, scenario.tag})
        except (AssertionError, store.CheckpointError, OSError) as error:
            failures.append(f"{where}: {error}")
    kills = sum(kind in ("kill", "tear") for kind, *_ in cases)
    return {"changes": len(trace), "kills": kills, "faults": len(cases) - kills, "failures": failures}


def main(base: Path) -> dict[str, Any]:
    """Every scenario; how many kills and faults were recovered from, of how many."""
    torch.set_num_threads(1)
    store.CHUNK = CHUNK
    start = time.monotonic()
    scenarios = {name: enumerated(name, scenario, base / "case") for name, scenario in SCENARIOS.items()}
    failures = [failure for result in scenarios.values() for failure in result.pop("failures")]
    total = {kind: sum(result[kind] for result in scenarios.values()) for kind in ("changes", "kills", "faults")}
    return {"scenarios": scenarios, "total": total, "failures": failures, "seconds": round(time.monotonic() - start, 1)}


if __name__ == "__main__":
    memory = (
        "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    )  # a kill does not lose the page cache: no disk needed
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else memory) as scratch:
        print(json.dumps(main(Path(scratch))))
