"""Boxes that stay: sessions with a shell, paid by their final files; sandboxes on another machine."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from assay.core import http
from assay.core.errors import AssayError
from assay.core.record import PolicyFault, Score
from assay.runs.catalogue import find_task
from assay.runs.options.sandbox import SandboxOptions
from assay.sandbox import Assertions, Calls, Completed, Limits, ProgramFault, SandboxFault, remote
from assay.sandbox import __main__ as sandbox_main
from assay.sandbox import shell as assay_shell
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.shell import BoxEnded, Shell, ShellFault
from assay.tasks.language import shell
from assay.tasks.language.dialogue import DialogueTask
from tests.sandbox.places import boxes, needs_boxes

ROW = {"prompt": "Sort a.txt into b.txt.", "files": {"a.txt": "2\n1\n"}, "expected_files": {"b.txt": "1\n2"}, "solution": "sort a.txt > b.txt"}  # fmt: skip  # noqa: E501


@needs_boxes
def test_a_folder_stays_and_boxes_do_not_see_each_other() -> None:
    first, second = Shell(boxes(), {"d/a.txt": "x"}), Shell(boxes())
    assert first.run("cd d && cat a.txt").output == "x"
    assert first.run("pwd").output == "/tmp/work/d\n"
    assert second.run("ls").output == ""
    assert first.run("sleep 9", seconds=0.3).is_late
    assert first.run("yes", seconds=0.3, most=10).output == "y\n" * 5
    assert first.run("false").status == 1
    assert first.files() == {"d/a.txt": b"x"}
    with pytest.raises(BoxEnded):
        first.run("kill -9 -1")
    with pytest.raises(BoxEnded):
        first.run("true")
    second.run("ln -s /usr/bin/bash l; mkfifo f; echo x > y")
    assert second.files() == {"y": b"x\n"}
    second.close()


def test_waiting_for_a_box_is_a_fault_of_the_sandbox_and_not_of_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = LocalSandbox("unsafe", 2)
    first, second, third = (Shell(sandbox) for _ in range(3))
    assert first.run("echo 1").output == "1\n"
    monkeypatch.setattr(assay_shell, "FREE", 0.3)
    with pytest.raises(ShellFault, match="no box was free"):
        third.run("echo 3")
    second.run("true")
    monkeypatch.setattr(assay_shell, "FREE", 60.0)
    fourth = Shell(sandbox)
    first.close()
    assert fourth.run("echo 4").output == "4\n"
    sandbox.close()
    with pytest.raises(ShellFault):
        second.run("true")


@needs_boxes
def test_a_session_is_paid_by_its_final_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "sandbox_of", lambda *given: boxes())
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    task = find_task(f"shell:{path}")
    assert isinstance(task, DialogueTask)
    partner = task.partner
    assert isinstance(partner, shell.ShellSessions)
    item = partner.item(0, 0)
    found = []
    for commands in (item.demonstration.split("\n"), ["echo 1 > b.txt", "exit"], ["exit"], ["kill -9 -1"]):
        session = partner.open(item, 0)
        replies = [session.reply(command) for command in commands]
        found.append(replies[-1].outcome)
        session.close()
    assert found[:3] == [Score(1.0), Score(0.0), Score(0.0)]
    assert isinstance(found[3], PolicyFault)
    assert "b.txt" not in json.dumps(item.facts["files"])


def test_the_sandbox_of_an_option_is_that_of_shells(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    task = SandboxOptions(sandbox="unsafe", sandbox_seconds=3.0).task(find_task(f"shell:{path}"))
    assert isinstance(task, DialogueTask)
    assert isinstance(task.partner, shell.ShellSessions)
    assert (task.partner.sandbox, task.partner.seconds) == ("unsafe", 3.0)


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../x": "y"}},
        {"files": 3},
        {"expected_files": {}},
        {"prompt": ""},
        {"solution": 3},
        {"files": {"a\0b": ""}},
    ],
)
def test_bad_rows_are_named(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**ROW, **change}) + "\n")
    with pytest.raises(AssayError, match="line 1"):
        find_task(f"shell:{path}")


@needs_boxes
def test_a_sandbox_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = remote.server(boxes(), "127.0.0.1", 0, "secret")
    threading.Thread(target=answering.serve_forever, args=(0.05,), daemon=True).start()
    far = remote.RemoteSandbox(f"http://127.0.0.1:{answering.server_address[1]}", 2)
    monkeypatch.setenv(remote.TOKEN, "wrong")
    assert isinstance(far.run("print(1)"), SandboxFault)
    monkeypatch.setenv(remote.TOKEN, "secret")
    result = far.run("def f(): return 3", Calls(("f()",)))
    assert isinstance(result, Completed)
    assert result.values == (["v", 3],)
    assert isinstance(far.run("while True: pass", limits=Limits(seconds=1, cpu_seconds=0.3)), ProgramFault)
    answering.shutdown()
    answering.server_close()
    assert isinstance(far.run("print(1)"), SandboxFault)
    with pytest.raises(AssayError, match="token"):
        remote.server(boxes(), "0.0.0.0", 0, "")
    with pytest.raises(AssayError, match="not an address"):
        remote.RemoteSandbox("ftp://x")


BAD_JOBS = [
    {},
    {"kind": "stdin"},
    {"kind": "shell", "code": ""},
    {"kind": "stdin", "code": 3},
    {"kind": "stdin", "code": "", "inputs": []},
    {"kind": "stdin", "code": "", "inputs": {"text": ["a"]}},
    {"kind": "stdin", "code": "", "inputs": {"tests": ["a"]}},
    {"kind": "calls", "code": ""},
    {"kind": "calls", "code": "", "inputs": {"expressions": "f()"}},
    {"kind": "calls", "code": "", "inputs": {"expressions": [1]}},
    {"kind": "calls", "code": "", "inputs": {"expressions": ["f()"], "setup": ["x"]}},
    {"kind": "assertions", "code": "", "inputs": {"setup": ""}},
    {"kind": "stdin", "code": "", "limits": {"seconds": 0}},
    {"kind": "stdin", "code": "", "limits": {"seconds": True}},
    {"kind": "stdin", "code": "", "limits": {"seconds": "1"}},
    {"kind": "stdin", "code": "", "limits": {"seconds": 601}},
    {"kind": "stdin", "code": "", "limits": {"processes": 4.5}},
    {"kind": "stdin", "code": "", "limits": {"processes": 10**6}},
    {"kind": "stdin", "code": "", "limits": {"memory": 1 << 50}},
    {"kind": "stdin", "code": "", "limits": {"output": 1 << 30}},
    {"kind": "stdin", "code": "", "limits": {"colour": 1}},
]


@pytest.mark.parametrize("job", BAD_JOBS, ids=[str(place) for place in range(len(BAD_JOBS))])
def test_a_job_that_does_not_fit_is_refused_before_it_runs(job: dict[str, object]) -> None:
    with pytest.raises(http.Refused) as refused:
        remote.Runs(LocalSandbox("none")).answer("POST", "/run", job)
    assert refused.value.status == 400


def test_other_routes_are_refused() -> None:
    with pytest.raises(http.Refused, match="no GET /"):
        remote.Runs(LocalSandbox("none")).answer("GET", "/", {})


@pytest.mark.parametrize(
    "address", ["ftp://x", "http://", "http://h:x", "http://h:99999", "http://u:p@h:1", "http://h:0"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(AssayError, match="is not an address"):
        remote.RemoteSandbox(address)


@pytest.mark.parametrize("words", [["--slots", "0"], ["--sandbox", "http://h:1"], ["--serve", "--port", "99999"]])
def test_bad_options_of_a_sandbox_server_are_one_sentence(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_main, "sandbox_of", lambda *given: LocalSandbox("none"))
    monkeypatch.setattr("sys.argv", ["sandbox", *words])
    with pytest.raises(SystemExit, match="error: --"):
        sandbox_main.main()


def test_jobs_that_wait_hear_of_a_sandbox_that_is_closed_or_killed() -> None:
    def kill(sandbox: LocalSandbox) -> None:
        assert sandbox.process is not None
        sandbox.process.kill()
        sandbox.process.wait()

    for end in (LocalSandbox.close, kill):
        sandbox = LocalSandbox("unsafe", 1)
        plain = {"code": "import time\ntime.sleep(60)", "kind": "stdin", "inputs": {"text": ""}, "limits": {}}
        futures = [sandbox.submit(plain)[1] for _ in range(3)]
        end(sandbox)
        _, later = sandbox.submit({**plain, "code": "pass"})
        assert all(isinstance(one.result(timeout=10), SandboxFault) for one in futures)
        assert isinstance(later.result(timeout=30), Completed)
        sandbox.close()


def test_a_job_that_cannot_begin_leaves_the_others() -> None:
    sandbox = LocalSandbox("unsafe", 1)
    plain = {"code": "pass", "kind": "stdin", "limits": {}}
    _, broken = sandbox.submit({**plain, "inputs": {"text": 3}})
    _, other = sandbox.submit({**plain, "inputs": {"text": ""}})
    assert isinstance(broken.result(timeout=30), SandboxFault)
    assert isinstance(other.result(timeout=30), Completed)
    result = sandbox.run("def f(x):\n    return x", Assertions(("assert f(3) == 3 and f(2) == 2",)))
    assert isinstance(result, Completed)  # two boxes, although one place was asked for
    assert result.values == (True,)
    sandbox.close()
