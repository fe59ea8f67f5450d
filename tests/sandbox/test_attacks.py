"""No program is rewarded without an answer, none leaves its box; honest programs pass."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.sandbox import Completed, Job, Limits, ProgramFault, Stdin
from assay.sandbox.grading import Graded, graded
from tests.sandbox.attacks import BOMBS, CONTROLS, ESCAPES, HACKS, TESTS
from tests.sandbox.places import QUICK, boxes, needs_boxes

pytestmark = needs_boxes
REPEATS = 4 if os.environ.get("ASSAY_TEST_ALL") else 1
TRACES = [Path(folder) / "assay-was-here" for folder in ("/", "/usr", "/dev", "/usr/bin", "/tmp")]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[str]:
    """Things outside that a program must not reach, as assignments: a file, a listener, a local socket, a process."""
    canary = tmp_path / "canary"
    canary.write_text("secret")
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as local:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        local.bind(f"\0assay-{os.getpid()}")
        local.listen(1)
        sandbox = boxes()
        assert sandbox.process is not None
        port, name = listener.getsockname()[1], f"assay-{os.getpid()}"
        yield f"CANARY, PORT, ABSTRACT, SUPERVISOR = {str(canary)!r}, {port}, {name!r}, {sandbox.process.pid}\n"
        listener.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_honest_programs_pass() -> None:
    programs = [Graded(code, TESTS) for code in CONTROLS.values()] * REPEATS
    assert [grade.passed for grade in graded(programs, boxes())] == [(True, True, True)] * len(programs)


def test_no_program_is_rewarded_without_an_answer() -> None:
    for _ in range(REPEATS):
        grades = graded([Graded(code, TESTS) for code in HACKS.values()], boxes(), QUICK)
        found = dict(zip(HACKS, grades, strict=True))
        assert {name: grade.fault for name, grade in found.items() if grade.passed is None} == {}
        assert [name for name, grade in found.items() if grade.is_right or any(grade.passed or ())] == []


def test_programs_that_do_not_end_are_faults_of_the_program() -> None:
    quick, small = Limits(seconds=4.0, cpu_seconds=1.0), Limits(seconds=20.0, cpu_seconds=8.0, memory=1 << 28)
    jobs = [Job(code, limits=small if "memory" in name else quick) for name, code in BOMBS.items()]
    results = dict(zip(BOMBS, boxes().run_all(jobs), strict=True))
    ended = {name: result.status for name, result in results.items() if isinstance(result, Completed)}
    assert {name: status for name, status in ended.items() if status == 0 or name != "memory"} == {}
    faults = {name: result.kind for name, result in results.items() if isinstance(result, ProgramFault)}
    assert len(ended) + len(faults) == len(BOMBS)
    assert {faults[name] for name in ("memory of many", "memory of threads' children", "hidden memory")} == {"memory"}
    assert {faults[name] for name in ("loop", "sleep", "deaf", "daemon", "tower")} == {"timeout"}
    assert {faults[name] for name in ("output", "errors")} == {"output"}


def test_no_program_leaves_its_box(outside: str) -> None:
    assert ESCAPES.keys().isdisjoint(HACKS.keys() & BOMBS.keys())
    for _ in range(REPEATS):
        jobs = [Job(outside + code, Stdin(), Limits(seconds=5.0, cpu_seconds=2.0)) for code in ESCAPES.values()]
        results = dict(zip(ESCAPES, boxes().run_all(jobs), strict=True))
        broken = {name: one for name, one in results.items() if not isinstance(one, Completed | ProgramFault)}
        assert broken == {}
        out = {name: one.output for name, one in results.items() if isinstance(one, Completed) and one.output}
        assert out == {}
        assert [path for path in TRACES if path.exists()] == []


def test_an_attempt_that_succeeds_is_seen() -> None:
    """The attempts are real: without a box some of them print what the others look for."""
    result = boxes().run(ESCAPES["a file of the machine"].replace("CANARY", "'/tmp'"))
    assert isinstance(result, Completed)
    assert "ESCAPED" in result.output


def test_there_are_enough_attempts() -> None:
    assert len(HACKS) + len(BOMBS) + len(ESCAPES) >= 180
    assert (len(HACKS) + len(BOMBS) + len(ESCAPES)) * 4 >= 720


def test_nothing_is_left_behind() -> None:
    sandbox = boxes()
    sandbox.run_all([Job(code, limits=QUICK) for code in (BOMBS["daemon"], BOMBS["forks"], "pass", "pass")])
    assert sandbox.process is not None
    children, deadline = Path(f"/proc/{sandbox.process.pid}/task/{sandbox.process.pid}/children"), time.monotonic() + 30
    while len(left := children.read_text().split()) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)  # a result is told when it is known; the killed processes of its box end a moment later
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in left]
    assert "Z" not in states
    assert len(states) <= 1
