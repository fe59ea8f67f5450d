"""Kill runs at every kind of moment, go on with them, and see that nothing differs from a run that nobody touched.

    python -m tests.resume.kills [part of a case's name]

Every run, killed or not, is a fork of this warm process. Prints one line a case and the number of kills survived.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core import store
from assay.core.calls import rewards_of
from assay.engine import evaluation
from assay.runs import result, run, saving
from assay.runs.folder import read_metrics, read_samples, without_time
from assay.runs.plan import Plan
from assay.runs.progress import Mode
from assay.runs.user_code.workers.parts import RemoteReward
from tests.resume.cases import CASES
from tests.resume.points import Point, killing, recorded

DEADLINE = 60.0
FINISHED, BROKEN = 0, 11
EVERY_CHANGE = {"reinforce bandit": 0, "grpo addition-1, warmed up": 1}
"""Cases, and their phase, that are killed at every kind of change on the disk; what a save does is the same for all."""


def warm() -> None:
    """What every fork inherits: one thread, evaluations of a few starts, no pictures. No gradient is taken here."""
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")
    np.unique(np.zeros(1))  # imports numpy.ma, once and not in every fork
    evaluation.EPISODES, evaluation.PROMPTS = 2, 4
    launch = saving.Saver.launch  # checkpoints are written in the loop's own thread: points have one order
    saving.Saver.launch = lambda saver, write, in_background: launch(saver, write, False)  # type: ignore[method-assign]
    result.draw_curve = lambda finished: None
    # A worker process for a reward function imports torch; tests/runs/test_workers.py starts and kills them.
    RemoteReward.rewards = lambda reward, rows, name: rewards_of(reward.function, rows, name)  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------------------------- forks
def forked(work: Callable[[int], object]) -> tuple[int, str]:
    """Runs `work(descriptor)` in a child: how it ended (an exit code, or minus a signal), and what it wrote."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = BROKEN
        try:
            os.close(reading)
            work(writing)
            code = FINISHED
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-3000:])
        finally:
            os._exit(code)
    os.close(writing)
    said, deadline = b"", time.monotonic() + DEADLINE
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not (chunk := os.read(reading, 1 << 16)):
            break
        said += chunk
    else:
        os.kill(pid, signal.SIGKILL)
        said += b" (no end within the deadline)"
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (BROKEN if said.endswith(b"deadline)") else code), said.decode(errors="replace")


def started(plan: Plan, folder: Path) -> None:
    """Starts or goes on: from the folder alone where that can be."""
    if plan.method is not None and (folder / "config.json").is_file():
        run.resume(folder, mode=Mode.SILENT)
    else:
        run.execute(plan, folder, mode=Mode.SILENT)


# ---------------------------------------------------------------------------------------------------- what is compared
def result_of(folder: Path, *, tidy: bool = True) -> dict[str, Any]:
    """Everything that a run leaves behind but for what a clock said: trees, metrics, samples, of its phases too."""
    loaded = store.load(folder / "checkpoints")
    assert loaded is not None, f"{folder} has no checkpoint"
    assert not loaded.skipped, f"the newest checkpoint was refused: {loaded.skipped}"
    tree = dict(loaded.tree)
    assert tree.pop("seconds")
    sizes = {name: (folder / name).stat().st_size for name in tree["journal"]}
    assert tree.pop("journal") == sizes, "the journals are not as long as the checkpoint says"
    steps = [row["step"] for row in read_metrics(folder)]
    assert steps == list(range(len(steps))), f"steps are lost or doubled: {steps}"
    left = [path.name for path in folder.rglob(".*")]
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert not tidy or (not left and len(names) <= 2), f"left behind: {left or names}"
    phase = {"phase": result_of(folder / run.PHASE, tidy=tidy)} if (folder / run.PHASE).is_dir() else {}
    return {
        "step": loaded.step,
        "facts": dict(loaded.manifest["facts"]),
        "tree": tree,
        "metrics": without_time(read_metrics(folder)),
        "samples": read_samples(folder),
        **phase,
    }


@dataclass
class Reference:
    """The run that nobody touched: its result, the points it passed, and its folder as it was after each save."""

    plan: Plan
    result: dict[str, Any]
    points: list[Point]
    stages: list[tuple[int, Path]]
    """(how many points had been passed, a copy of the folder)."""


def reference(plan: Plan, base: Path) -> Reference:
    """Runs the plan once, in a child that notes its points and copies its folder after each checkpoint."""
    folder, copies = base / "reference", base / "copies"
    shutil.rmtree(base, ignore_errors=True)
    copies.mkdir(parents=True)

    def work(descriptor: int) -> None:
        points: list[Point] = []
        save = run.Worker.save

        def saved(worker: run.Worker) -> None:
            save(worker)
            watcher.paused = True
            shutil.copytree(folder, copies / str(len(points)))
            watcher.paused = False

        run.Worker.save = saved  # type: ignore[method-assign]
        watcher = recorded(points)
        watcher.install()
        started(plan, folder)
        (base / "points").write_text(repr(points))

    code, said = forked(work)
    assert code == FINISHED, f"the untouched run failed: {said}"
    points = eval((base / "points").read_text())
    stages = sorted((int(path.name), path) for path in copies.iterdir())
    return Reference(plan, result_of(folder), points, stages)


def differences(reference: Reference, folder: Path, *, tidy: bool = True) -> list[str]:
    """Where a run's result differs from the untouched one's."""
    try:
        return store.difference(reference.result, result_of(folder, tidy=tidy))
    except (AssertionError, store.CheckpointError) as error:
        return [str(error)]


# ---------------------------------------------------------------------------------------------------- killing
@dataclass
class Outcome:
    """How many kills happened where they should, and what went wrong."""

    kills: int = 0
    runs: int = 0
    names: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


def strike(reference: Reference, folder: Path, target: Point, outcome: Outcome) -> bool:
    """Goes on with the folder's run until the target and kills it there; whether that is what happened."""

    def work(descriptor: int) -> None:
        killing(target, descriptor).install()
        started(reference.plan, folder)

    code, said = forked(work)
    if code == -signal.SIGKILL and said == str(target):
        outcome.kills += 1
        outcome.names.add(target.name)
        return True
    outcome.failures.append(f"{target}: not killed there but ended with {code}: {said}")
    return False


def finish_and_compare(reference: Reference, folder: Path, what: str, outcome: Outcome, *, tidy: bool = True) -> None:
    """Goes on to the end in a fresh fork; every difference is a failure."""
    code, said = forked(lambda descriptor: started(reference.plan, folder))
    outcome.runs += 1
    if code != FINISHED:
        outcome.failures.append(f"{what}: going on ended with {code}: {said}")
    elif different := differences(reference, folder, tidy=tidy):
        outcome.failures.append(f"{what}: differs at {different[:5]}")


def kill_once(reference: Reference, target: Point, folder: Path, outcome: Outcome) -> None:
    """From the last save before the target: on to it, kill, go on to the end, compare."""
    index = reference.points.index(target)
    before = [path for passed, path in reference.stages if passed <= index]
    shutil.rmtree(folder, ignore_errors=True)
    if before:
        shutil.copytree(before[-1], folder)
    if strike(reference, folder, target, outcome):
        is_last = target.step == max(point.step for point in reference.points if point.phase == target.phase)
        tidy = not (is_last and is_removal(target))  # no save comes after it
        finish_and_compare(reference, folder, f"killed at {target}", outcome, tidy=tidy)


def is_removal(point: Point) -> bool:
    """Whether something is renamed or removed there: what a checkpoint that is complete leaves to be done."""
    return point.name.split()[0] in ("rename", "unlink", "rmdir")


def kill_in_a_row(reference: Reference, targets: Sequence[Point], folder: Path, outcome: Outcome) -> None:
    """One run from its very start, killed at each target in turn, then compared."""
    shutil.rmtree(folder, ignore_errors=True)
    for target in targets:
        if not strike(reference, folder, target, outcome):
            return
    finish_and_compare(reference, folder, f"killed {len(targets)} times in a row", outcome)


def is_of_a_phase(point: Point) -> bool:
    """Phases, optimizer steps and the log; not the files of a checkpoint."""
    first = point.name.split()[0]
    return first in ("before", "after", "in") or (first in ("write", "half") and point.name.endswith(".jsonl"))


def targets_in_a_row(reference: Reference, often: bool) -> list[Point]:
    """All moments of phases and of the log: each kind in every second step where `often`, else once, in a step that
    differs from kind to kind.
    """
    points = [point for point in reference.points if is_of_a_phase(point) and point.count == 1]
    kinds: dict[tuple[int, str], list[Point]] = {}
    for point in points:
        kinds.setdefault((point.phase, point.name), []).append(point)
    if often:
        names = list(dict.fromkeys(point.name for point in points))
        return [point for point in points if (point.step + names.index(point.name)) % 2]
    return in_order(reference, (found[place % len(found)] for place, found in enumerate(kinds.values())))


def in_order(reference: Reference, chosen: Iterable[Point]) -> list[Point]:
    """The chosen points in the order in which the run passes them; two points of a step compare as equal."""
    names = {(point.phase, point.step, point.name, point.count) for point in chosen}
    return [point for point in reference.points if (point.phase, point.step, point.name, point.count) in names]


def targets_once(reference: Reference, every_change: int | None) -> list[Point]:
    """The begin of each phase, an optimizer step and a torn log, about the middle of the run.

    In the phase `every_change` all kinds of moments, those of a save too.
    """
    kinds: dict[tuple[int, str], list[Point]] = {}
    for point in reference.points:
        begins = is_of_a_phase(point) and point.name.split()[0] not in ("after", "write")
        if point.phase == every_change or begins:
            kinds.setdefault((point.phase, point.name), []).append(point)
    return in_order(reference, (found[len(found) // 2] for found in kinds.values()))


def killed(name: str, base: Path, each: bool = True) -> Outcome:
    """Kills of one case: at all moments of phases in a row; in a second row at those kinds of moments that were not in
    the first, alone where a resumed run does not come by again; where `each`, alone at every kind.
    """
    untouched = reference(CASES[name](), base)
    outcome = Outcome()
    finish_and_compare(untouched, base / "again", "the same run again", outcome)  # without a kill: the control
    kill_in_a_row(untouched, targets_in_a_row(untouched, often=each), base / "row", outcome)
    targets, in_the_row = targets_once(untouched, EVERY_CHANGE.get(name)), set(outcome.names)
    rest = [] if each else [one for one in targets if one.name not in in_the_row and not is_removal(one)]
    if rest:
        kill_in_a_row(untouched, rest, base / "row", outcome)
    for target in targets:
        if each or is_removal(target):
            kill_once(untouched, target, base / "once", outcome)
    return outcome


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: a kill does not lose the page cache, so no disk is needed."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="assay-resume-") as folder:
        yield Path(folder)


def main(wanted: str) -> int:
    warm()
    total, failures, begin = 0, 0, time.monotonic()
    for name in CASES:
        if wanted in name:
            start = time.monotonic()
            with scratch() as base:
                outcome = killed(name, base / "case")
            total, failures = total + outcome.kills, failures + len(outcome.failures)
            spent = time.monotonic() - start
            print(f"{name}: {outcome.kills} kills of {len(outcome.names)} kinds, {outcome.runs} runs, {spent:.1f} s")
            print("".join(f"  {failure}\n" for failure in outcome.failures), end="")
    print(f"kills survived: {total - failures}/{total} in {time.monotonic() - begin:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
