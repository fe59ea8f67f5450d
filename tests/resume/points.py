"""Points of a run at which it can be killed: phases, optimizer steps, evaluations, and every change on the disk."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.engine import engine, evaluation, loop
from assay.runs import run

CHANGES = ("open", "write", "fsync", "ftruncate", "rename", "mkdir", "unlink", "rmdir")
ORIGINAL = {name: getattr(os, name) for name in CHANGES}
CREATES = os.O_CREAT | os.O_TRUNC
TEAR = "half of "
RUNS = {"reference", "again", "row", "once"}
"""What the folders of runs are called here."""
PASSED = 10
"""Exit code of a child that came past the point where it should have been killed."""


@dataclass(frozen=True, order=True)
class Point:
    """The `count`-th time that `name` happens while the run stands at `step` of a phase.

    Phases: 0 before a warm-up (or all of a run without one), 1 the warm-up, 2 after it.
    """

    phase: int
    step: int
    name: str = field(compare=False)
    count: int = field(compare=False)

    def __str__(self) -> str:
        where = ("", "warm-up ", "after it ")[self.phase]
        return f"{where}step {self.step}: {self.name} ({self.count})"


Touch = Callable[[Point], None]


class Watcher:
    """Calls `touch` at every point that the run in this process passes."""

    def __init__(self, touch: Touch) -> None:
        self.touch, self.workers, self.phase, self.paused = touch, list[Any](), 0, False
        self.tearing: Callable[[], object] = lambda: None
        self.counts: Counter[tuple[int, int, str]] = Counter()

    def at(self, name: str) -> Point:
        key = (self.phase, self.workers[-1].loop.progress.step if self.workers else 0, name)
        self.counts[key] += 1
        point = Point(*key, self.counts[key])
        self.touch(point)
        return point

    def install(self) -> None:
        """Replaces what is watched, for the rest of this process."""
        self.watch_phases()
        for name in CHANGES:
            setattr(os, name, self.watched_change(name))

    def watch_phases(self) -> None:
        timed, update, scores = loop.Step.time_phase, engine.Engine.update_together, evaluation.evaluate
        init, executed = run.Worker.__init__, run.executed

        @contextmanager
        def watched_timed(step: loop.Step, phase: str) -> Iterator[None]:
            self.at(f"before {phase}")
            with timed(step, phase):
                yield
            self.at(f"after {phase}")

        def watched_update(*arguments: Any) -> Any:
            result = update(*arguments)
            self.at("in the midst of update")
            return result

        def watched_scores(*arguments: Any, **options: Any) -> Any:
            self.at("before evaluate")
            result = scores(*arguments, **options)
            self.at("after evaluate")
            return result

        def watched_init(worker: run.Worker, *arguments: Any) -> None:
            init(worker, *arguments)
            self.workers.append(worker)
            if worker.folder.name == run.PHASE:
                self.phase = 1
            elif worker.plan.warmup and worker.scores:
                self.phase = 2

        def watched_executed(plan: Any, folder: Path, *rest: Any, **options: Any) -> Any:
            result = executed(plan, folder, *rest, **options)
            if folder.name == run.PHASE:
                self.workers.pop()
                self.phase = 2
            return result

        loop.Step.time_phase = watched_timed  # type: ignore[method-assign]
        engine.Engine.update_together = watched_update  # type: ignore[method-assign]
        evaluation.evaluate = watched_scores
        run.Worker.__init__ = watched_init  # type: ignore[method-assign]
        run.executed = watched_executed

    def watched_change(self, call: str) -> Callable[..., Any]:
        original = ORIGINAL[call]

        def watched(*arguments: Any, **options: Any) -> Any:
            reads = call == "open" and not arguments[1] & CREATES
            if self.paused or reads or (call == "mkdir" and os.path.isdir(arguments[0])):
                return original(*arguments, **options)
            descriptor = call in ("write", "fsync", "ftruncate")
            path = os.readlink(f"/proc/self/fd/{arguments[0]}") if descriptor else os.fspath(arguments[0])
            name = f"{call} {kind(path)}"
            if call == "write" and len(arguments[1]) > 1:
                half = memoryview(arguments[1])[: len(arguments[1]) // 2]
                self.tearing = lambda: original(arguments[0], half)
                self.at(TEAR + name)
            self.at(name)
            return original(*arguments, **options)

        return watched


def kind(path: str) -> str:
    """A file's name without what differs from run to run."""
    name = re.sub(r"\.(tmp|dead)-[0-9a-f]+\.\d+-[0-9a-f]+-", r"\1 ", Path(path).name)
    return "the run's folder" if name in RUNS else re.sub(r"step-\d+(\.\d+)?", "step", name)


def recorded(points: list[Point]) -> Watcher:
    """Notes every point."""
    return Watcher(points.append)


def killing(target: Point, marker: int) -> Watcher:
    """Kills this process at the target, after a word on the marker's descriptor; leaves where it came past it."""

    def touch(point: Point) -> None:
        if (point, point.name, point.count) == (target, target.name, target.count):
            if point.name.startswith(TEAR):
                watcher.tearing()
            ORIGINAL["write"](marker, str(point).encode())
            os.kill(os.getpid(), signal.SIGKILL)
        if point > target:
            ORIGINAL["write"](marker, f"came past it: {point}".encode())
            os._exit(PASSED)

    watcher = Watcher(touch)
    return watcher
