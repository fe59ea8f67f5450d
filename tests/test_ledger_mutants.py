"""Wrong versions of the ledger: the laws of tests/test_ledger.py reject every one of them, and accept the right one."""

from __future__ import annotations

import inspect
import random
import sys
from types import ModuleType

import pytest
from hypothesis import is_hypothesis_test

import assay.runs.distributed.ledger
from assay.core.errors import AssayError
from tests import test_ledger as laws

SCHEDULES = 200
MUTANTS = {
    "the lag is one larger when work is handed out": (
        "step - self.schedule.lag > self.version", "step - self.schedule.lag - 1 > self.version"),
    "the lag is one smaller when work is handed out": (
        "step - self.schedule.lag > self.version", "step - self.schedule.lag >= self.version"),
    "sequences one version too old are accepted": (
        "max(0, step - self.schedule.lag)", "max(0, step - self.schedule.lag - 1)"),
    "weights that were never published are accepted": (
        "not work.least <= version <= self.version", "not work.least <= version"),
    "duplicates are accepted": ("if step < self.step or number in self.here.get(step, ()):", "if step < self.step:"),
    "deliveries of trained steps are accepted": (
        "if step < self.step or number in self.here.get(step, ()):", "if number in self.here.get(step, ()):"),
    "work that was never handed out is accepted": ("piece >= self.next or not", "not"),
    "what is refused is not sampled again": (
        "if piece in mine:\n                self._lose(worker, piece)\n            return", "return"),
    "lost work is not handed out again": (
        "] = self.attempts.get(piece, 0) + 1\n            heapq.heappush(self.again, piece)",
        "] = self.attempts.get(piece, 0) + 1"),
    "losses are not counted": ("self.attempts.get(piece, 0) + 1\n", "0\n"),
    "lost work comes in the order of the losses": (
        "step, number = heapq.heappop(self.again)", "step, number = self.again.pop()"),
    "work that arrived late is handed out again": (
        "if step >= self.step and number not in self.here.get(step, ()):\n                return",
        "if step >= self.step:\n                return"),
    "the limit of attempts is ignored": ("if attempt >= ATTEMPTS:", "if attempt > 10 * ATTEMPTS:"),
    "work that stopped the run is forgotten": (
        "heapq.heappush(self.again, piece)\n            raise", "raise"),
    "the limit of restarts is ignored": ("if self.counts.get(worker, 0) >= self.most:", "if self.most < 0:"),
    "one restart too many": (">= self.most:", "> self.most:"),
    "restarts of all workers count together": ("if self.counts.get(worker, 0) >=", "if sum(self.counts.values()) >="),
    "a step is trained before its last piece is there": (
        "< self.schedule.pieces:\n            return None", "< self.schedule.pieces - 1:\n            return None"),
    "any step that is complete is trained": (
        "if self.is_done or len(self.here.get(self.step, ())) <",
        "if self.is_done or max(map(len, self.here.values()), default=0) <"),
    "the batch is joined backwards": (
        "return range(first, first + self.schedule.starts)",
        "return range(first + self.schedule.starts - 1, first - 1, -1)"),
    "the batch is that of the next step": (
        "first = self.step * self.schedule.starts", "first = (self.step + 1) * self.schedule.starts"),
    "an older version is published over a newer one": (
        "self.version = max(self.version, version)", "self.version = version"),
    "attempts of trained steps are kept": ("if piece[0] > self.step}", "if piece[0] >= 0}"),
    "attempts of later steps are forgotten": ("if piece[0] > self.step}", "if piece[0] > self.step + 1}"),
    "staleness counts pieces, not sequences": ("rows = len(work.ordinals) * work.members", "rows = 1"),
    "a delivered piece is still held": ("mine.discard(piece)\n        self.here", "self.here"),
    "work of an earlier process is accepted": ("least, attempt, self.incarnation)", "least, attempt, 0)"),
    "a checkpoint forgets its losses": (
        'count in state["attempts"] if is_same}', 'count in state["attempts"] if not is_same}'),
    "a checkpoint's weights are not published": (
        "return cls(schedule, step, step, lost", "return cls(schedule, step, 0, lost"),
    "a resumed run continues one step late": ("lost, found, (step, 0), inc", "lost, found, (step + 1, 0), inc"),
    "another lag is accepted on resume": ('not in ("steps", "piece")', 'not in ("steps", "piece", "lag")'),
    "the last piece of a step is too large": (
        "first + min(self.starts, (piece + 1) * self.piece)", "first + (piece + 1) * self.piece"),
}  # fmt: skip


def mutated(old: str, new: str) -> ModuleType:
    """Returns the ledger's module with one place replaced."""
    source = inspect.getsource(assay.runs.distributed.ledger)
    assert source.count(old) == 1, f"{source.count(old)} places of the ledger are {old!r}"
    module = ModuleType("mutated_ledger")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(source.replace(old, new), "mutated_ledger.py", "exec"), vars(module))
    return module


def judge() -> None:
    """Runs the laws in the module of laws: single cases, then random schedules."""
    for name, law in inspect.getmembers(laws, inspect.isfunction):
        if name.startswith("test_") and not inspect.signature(law).parameters and not is_hypothesis_test(law):
            law()
    for seed in range(SCHEDULES):
        draw = random.Random(seed)
        schedule = laws.drawn(draw)
        laws.check(schedule, seed, draw.randint(0, 60))
        laws.deliveries(schedule, draw)


def test_the_ledger_as_it_is_keeps_the_laws() -> None:
    judge()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_ledger_is_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = mutated(*MUTANTS[name])
    for known in ("ATTEMPTS", "Answer", "Ledger", "Restarts", "WorkSchedule", "Work", "WorkStopped"):
        monkeypatch.setattr(laws, known, getattr(module, known))
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception, AssayError)):
        judge()
    del sys.modules[module.__name__]
