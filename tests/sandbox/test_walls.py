"""Each protection of a box matters: left out, the look from the inside finds the hole."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from assay.core.errors import AssayError
from assay.sandbox import Calls, Completed, Limits, SandboxFault, choice, sandbox_of
from assay.sandbox.commands import PROTECTIONS
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.probes import check, describe_sandbox, holes
from tests.sandbox.places import boxes, needs_boxes

pytestmark = needs_boxes

HIDDEN = {"user": ("uid", "userns"), "userns": ("seccomp",), "caps": ("uid",)}
"""Protections behind others, which are left out too, with and without the one that is tried."""
AS_ROOT = ("uid", "groups", "caps", "user")


def found(*without: str) -> set[str]:
    """What is open in a box without some protections."""
    sandbox = LocalSandbox(num_slots=1, without=without)
    try:
        return set(holes(describe_sandbox(sandbox)))
    finally:
        sandbox.close()


def test_a_whole_box_has_no_hole() -> None:
    assert check(boxes())["folder"] == "/tmp"
    assert holes(describe_sandbox(boxes(), Limits(disk=1 << 20)), Limits(disk=1 << 20)) == []


@pytest.mark.parametrize("name", [name for name in PROTECTIONS if name != "die"])
def test_each_protection_that_is_left_out_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in AS_ROOT and os.geteuid() != 0:
        pytest.skip("only root has this to lose")
    monkeypatch.setenv("ASSAY_TEST_SECRET", "1")
    others = HIDDEN.get(name, ())
    assert found(name, *others) - (found(*others) if others else set())


def living(uid_above: int = 200_000) -> list[str]:
    """Processes of boxes on this machine."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "assay-test-sleeper" in line and "ps -eo" not in line]


@pytest.mark.parametrize("without", [(), ("die",)])
def test_boxes_end_with_a_supervisor_that_is_killed(without: tuple[str, ...]) -> None:
    sandbox = LocalSandbox(num_slots=1, without=without)
    words = "[sys.executable, '-c', 'import time; time.sleep(8)', 'assay-test-sleeper']"
    code = f"import os, sys\nos.execv(sys.executable, {words})"
    _, future = sandbox.submit({"code": code, "kind": "stdin", "inputs": {"text": ""}, "limits": limits()})
    until = time.monotonic() + 10
    while not living() and time.monotonic() < until:
        time.sleep(0.05)
    assert living()
    assert sandbox.process is not None
    os.kill(sandbox.process.pid, signal.SIGKILL)
    assert isinstance(future.result(timeout=5), SandboxFault)
    until = time.monotonic() + 2
    while living() and time.monotonic() < until:
        time.sleep(0.05)
    assert bool(living()) == ("die" in without)
    for line in living():
        assert "sleeper" in line  # it ends by itself, after 8 s
    assert isinstance(sandbox.run("pass"), Completed)  # a new supervisor
    sandbox.close()


def limits() -> dict[str, float]:
    """Limits that the sleeper keeps."""
    return {"seconds": 20.0}


def test_a_box_that_cannot_start_is_a_fault_of_the_sandbox() -> None:
    sandbox = LocalSandbox(num_slots=1, without=("proc", "dev", "links"))
    result = sandbox.run("def f(): return 1", Calls(("f()",)))
    sandbox.close()
    assert isinstance(result, SandboxFault)
    with pytest.raises(AssayError, match=r"does not run programs.*apt install bubblewrap"):
        check(LocalSandbox(num_slots=1, without=("links",)))


def test_a_box_with_a_hole_is_refused() -> None:
    sandbox = LocalSandbox(num_slots=1, without=("net",))
    with pytest.raises(AssayError, match=r"does not hold.*network.*--sandbox unsafe"):
        check(sandbox)
    sandbox.close()


def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice.shutil, "which", lambda *given, **named: None)
    sandbox_of.cache_clear()
    with pytest.raises(AssayError, match=r"'bwrap' is not installed.*apt install bubblewrap"):
        sandbox_of("bubblewrap", 8)
    with pytest.raises(AssayError, match="no sandbox 'docker'"):
        sandbox_of("docker")
    monkeypatch.undo()


def test_unsafe_is_loud(capfd: pytest.CaptureFixture[str]) -> None:
    sandbox = sandbox_of("unsafe", 1)
    assert "WARNING" in capfd.readouterr().err
    assert isinstance(sandbox.run("print(1)"), Completed)
    sandbox.close()
