"""Worker processes of own code: the same numbers and sentences as in process, limits that hold, nothing left behind."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.core.calls import Overtime, OwnCodeError, Unanswered, rewards_of
from assay.core.errors import AssayError
from assay.core.faults import own_fault
from assay.core.record import InfraFault, Score
from assay.rollouts.text import TOOL_RESPONSE
from assay.runs.progress import Mode
from assay.runs.signals import Stopped
from assay.runs.user_code.addresses import Address
from assay.runs.user_code.loading import value_of
from assay.runs.user_code.tools import tools_of
from assay.runs.user_code.workers import crew, frames, guard, process
from assay.runs.user_code.workers.process import Limits, Lost
from assay.runs.user_code.workers.remote import RemoteClass, RemoteFunction, remote_class, remote_function
from assay.runs.user_code.workers.serving import Request
from assay.tasks.language.addition import addition
from assay.tasks.language.tools import ToolUse, first_rows, with_tools

FILE = '''
import os, re, signal, sys, tempfile, time

def equal(completions, answer):
    return [float(said == right) for said, right in zip(completions, answer)]

def thirds(rows):
    return [len(row["completion"]) / 3 if row["completion"] else None for row in rows]

async def later(rows):
    return [1e-310] * len(rows)

def arrays(rows):
    import numpy
    return numpy.array([0.1] * len(rows), dtype=numpy.float32)

def once(rows):
    return [float(len(rows))] * len(rows)

def without_torch(rows):
    return [float("torch" in sys.modules or "numpy" in sys.modules)] * len(rows)

def alarmed(rows):
    signal.signal(signal.SIGALRM, lambda *_: None)  # only the main thread may
    return [1.0] * len(rows)

def divides(rows):
    return [1 / len(row["completion"]) for row in rows]

def short(rows):
    return [1.0]

def text(rows):
    return ["1"] * len(rows)

def infinite(rows):
    return [1.0, float("inf"), 0.0][:len(rows)]

def leaves(rows):
    os._exit(0)

def quits(rows):
    sys.exit(0)

def needs(completions, solution):
    return [0.0] * len(completions)

def backtracks(rows):
    return [float(bool(re.match(r"(a+)+$", "a" * 40 + "b")))] * len(rows)

def allocates(rows):
    kept = []
    for _ in range(40 * 64):  # 40 GB, touched
        kept.append(b"ab" * (8 << 20))
    return [0.0] * len(rows)

def forks(rows):
    for _ in range(5):
        os.fork()
    time.sleep(100)

def forks_and_returns(rows):
    os.fork()
    return [1.0] * len(rows)

def bomb(rows):
    for _ in range(300):
        if not os.fork():
            time.sleep(100)
    time.sleep(100)

def writes(rows):
    with tempfile.NamedTemporaryFile("wb", delete=False) as file:
        for _ in range(1024):
            file.write(b"x" * (1 << 20))
    return [0.0] * len(rows)

def ends(rows):
    os.kill(os.getpid(), signal.SIGSEGV)

def waits(rows):
    time.sleep(100)

def waits_in_training(rows):
    if not any(row["completion"] == "" for row in rows):
        time.sleep(100)
    return [0.0] * len(rows)

def prints(rows):
    print("line\\n" * 500_000)
    print("the end", flush=True)
    return [0.0] * len(rows)

def search(query, limit=3):
    """Searches."""
    if query == "hang":
        backtracks([0])
    if query == "fail":
        raise LookupError("nothing found")
    return {"query": query, "limit": limit}

class Counter:
    max_turns = 5
    def __init__(self, start=0):
        self.count = start
        self.file = open(os.devnull)
    def step(self, said):
        self.count += 1
        return said.upper(), self.count / 3, self.count > 4
    async def wait(self, seconds):
        import asyncio
        await asyncio.sleep(seconds)
        return self.count
    def sleep(self, seconds):
        time.sleep(seconds)
        return os.getpid()
    def paid(self, kind="Score"):
        from assay.core import record
        return getattr(record, kind)(0.1 if kind == "Score" else "broken")
    def end(self):
        os.kill(os.getpid(), signal.SIGKILL)
'''
ROWS = [{"prompt": "p", "completion": said, "answer": "2"} for said in ("2", "", "221")]
SMALL = Limits(memory=1.0, file=0.1)
SETTINGS = {"rollout.num_starts": 2, "rollout.group_size": 2}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are followed by /proc")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(FILE)
    yield tmp_path / "mine.py"
    crew.close_all()
    assert guards(os.getpid()) == [], "no worker is left"


def function(file: Path, name: str, limits: Limits = SMALL) -> RemoteFunction:
    found = remote_function(Address(str(file), name), name, limits)
    assert found is not None
    return found


def counters(file: Path, seconds: float = 5.0) -> RemoteClass:
    found = remote_class(Address(str(file), "Counter"), SMALL, seconds)
    assert found is not None
    return found


def guards(pid: int) -> list[int]:
    """Returns the guards of workers below a process."""
    found = []
    for below in guard.descendants(pid):
        try:
            command = Path(f"/proc/{below}/cmdline").read_bytes()
        except OSError:
            continue
        found += [below] if guard.__file__.encode() in command else []
    return found


def alive(pid: int) -> bool:
    """Returns whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def refusal(call: Any) -> str:
    with pytest.raises(AssayError) as caught:
        call()
    return str(caught.value)


# ---------------------------------------------------------------------------------------------------- as in process
@pytest.mark.parametrize("name", ["equal", "thirds", "later", "arrays", "once"])
def test_numbers_are_those_of_the_same_function_in_process(file: Path, name: str) -> None:
    here = rewards_of(value_of(Address(str(file), name)), ROWS, f"reward {name}")
    assert function(file, name).rewards(ROWS, f"reward {name}", 5.0) == here


def test_failures_have_the_same_sentences_as_in_process(file: Path) -> None:
    for name in ("divides", "short", "text", "infinite", "leaves", "quits", "needs"):
        local = value_of(Address(str(file), name))
        here = refusal(lambda name=name, local=local: rewards_of(local, ROWS, f"reward {name}"))
        there = refusal(lambda name=name: function(file, name).rewards(ROWS, f"reward {name}", 5.0))
        assert there == here


def test_an_error_names_its_place_in_the_users_file(file: Path) -> None:
    with pytest.raises(OwnCodeError, match=r"ZeroDivisionError.*mine\.py, line \d+\) on row 1") as caught:
        function(file, "divides").rewards(ROWS, "reward divides", 5.0)
    fault = own_fault(caught.value)
    assert fault is not None
    assert fault.kind == "ZeroDivisionError"
    assert "return [1 / len" in str(caught.value.__cause__), "the traceback comes along"


def test_a_worker_starts_without_torch_and_calls_in_its_main_thread(file: Path) -> None:
    assert function(file, "without_torch").rewards(ROWS, "it", 5.0) == [0.0] * 3
    assert function(file, "alarmed").rewards(ROWS, "it", 5.0) == [1.0] * 3


def test_code_that_changes_while_it_is_used_is_refused_by_the_next_worker(file: Path) -> None:
    equal = function(file, "equal")
    assert equal.rewards(ROWS, "it", 5.0) == [1.0, 0.0, 0.0]
    file.write_text(FILE.replace("said == right", "said != right"))
    assert equal.rewards(ROWS, "it", 5.0) == [1.0, 0.0, 0.0], "a worker keeps what it has loaded"
    crew.close_all()
    with pytest.raises(OwnCodeError, match=r"own code has changed while the run uses it: mine\.py"):
        equal.rewards(ROWS, "it", 5.0)


# ---------------------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("backtracks", "reward backtracks did not return within 2 s"),
        ("forks", "reward forks did not return within 2 s"),
        ("bomb", "reward bomb (started more than 256 processes|did not return within 2 s)"),
        ("allocates", r"reward allocates (used more than 1 GB of memory|did not return within 2 s)"),
        ("writes", r"reward writes raised OSError: .*File too large.*--worker-file"),
        ("ends", r"reward ends ended its process by signal 11 \(SIGSEGV\)"),
    ],
)
def test_a_reward_that_breaks_a_limit_is_named_and_nothing_is_left(
    file: Path, name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.close_all()
    before = set(guard.descendants(os.getpid()))  # of other tests
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # apart from the workers of other tests
    monkeypatch.setattr(tempfile, "tempdir", None)
    function(file, "equal").rewards(ROWS, "it", 5.0)  # the worker has started
    folders = set(tmp_path.glob("assay-worker-*"))
    assert folders
    begin = time.monotonic()
    with pytest.raises(OwnCodeError, match=words):
        function(file, name).rewards(ROWS, f"reward {name}", 2.0)
    assert time.monotonic() - begin < 4.0
    assert function(file, "equal").rewards(ROWS, "it", 5.0) == [1.0, 0.0, 0.0], "the next call has a new worker"
    crew.close_all()
    assert not [one for one in guard.descendants(os.getpid()) if alive(one) and one not in before]
    assert not any(one.exists() for one in folders)


def test_a_forked_process_that_returns_does_not_answer(file: Path) -> None:
    for _ in range(3):
        assert function(file, "forks_and_returns").rewards(ROWS, "it", 5.0) == [1.0] * 3


def test_a_run_with_a_reward_that_hangs_ends_and_can_be_resumed(file: Path, tmp_path: Path) -> None:
    words = r"reward waits_in_training did not return within 0\.5 s.*resume with: assay resume"
    with pytest.warns(UserWarning, match="verifier"), pytest.raises(AssayError, match=words):
        train(file, "waits_in_training", tmp_path, reward_timeout=0.5)
    assert guards(os.getpid()) == []
    file.write_text(FILE.replace("time.sleep(100)", "pass"))
    run = assay.resume(tmp_path / "run", accept_changed_code=True, mode=Mode.SILENT)  # what was said is not said again
    assert len(run.scores_after)


def train(file: Path, name: str, tmp_path: Path, **more: Any) -> Any:
    return assay.train(
        "grpo", "addition-1", steps=1, warmup=0, settings=SETTINGS, out=tmp_path / "run", mode=Mode.SILENT,
        reward=f"{file}:{name}", **more,
    )  # fmt: skip


def test_what_own_code_prints_is_in_the_folder_of_the_run_and_bounded(file: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="verifier"):
        train(file, "prints", tmp_path)
    log = tmp_path / "run" / crew.LOG
    assert log.stat().st_size <= guard.LOG_BYTES + (1 << 17)
    assert log.read_text().rstrip().endswith("the end")


def test_in_process_is_a_choice(file: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="verifier"):
        train(file, "equal", tmp_path, in_process=True)
    assert not (tmp_path / "run" / crew.LOG).exists()
    for name in ("worker_memory", "worker_file"):
        with pytest.raises(AssayError, match="Use a positive number of gigabytes"):
            train(file, "equal", tmp_path / "other", **{name: 0.0})


# ---------------------------------------------------------------------------------------------------- signals
@pytest.mark.parametrize(
    ("number", "in_process"), [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGTERM, True)]
)
def test_a_stop_signal_is_answered_while_a_reward_runs(
    file: Path, tmp_path: Path, number: int, in_process: bool
) -> None:
    when: list[float] = []
    mark = tmp_path / "waiting"
    file.write_text(FILE.replace("time.sleep(100)", f"open({str(mark)!r}, 'w').close(), time.sleep(100)"))

    def stop() -> None:
        while not mark.exists():
            time.sleep(0.05)
        when.append(time.monotonic())
        os.kill(os.getpid(), number)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
    threading.Thread(target=stop, daemon=True).start()
    try:
        with pytest.warns(UserWarning, match="verifier"), pytest.raises(Stopped) as caught:
            train(file, "waits_in_training", tmp_path, in_process=in_process)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - when[0] < 2.0
    assert caught.value.exit_code == 128 + number
    assert guards(os.getpid()) == []


def test_nothing_is_left_when_the_trainer_is_killed(file: Path, tmp_path: Path) -> None:
    script = f"""
        import os
        from assay.runs.user_code.workers.process import Limits
        from assay.runs.user_code.workers.remote import RemoteFunction
        os.environ["TMPDIR"] = {str(tmp_path)!r}
        RemoteFunction({str(file)!r}, "forks", {{}}, Limits(1.0)).rewards([{{}}], "it", 60.0)
    """
    trainer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    try:
        deadline = time.monotonic() + 20.0
        while len(below := guard.descendants(trainer.pid)) < 33 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(below) >= 33, "32 processes and their guard"
    finally:
        trainer.kill()
        trainer.wait(5.0)
    deadline = time.monotonic() + 3.0
    while any(map(alive, below)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(alive, below))
    assert not list(tmp_path.glob("assay-worker-*"))


# ---------------------------------------------------------------------------------------------------- tools, objects
def test_a_tool_gives_text_its_exceptions_and_typed_faults(file: Path) -> None:
    search = function(file, "search")
    assert search.text({"query": "cats"}, "tool search", 5.0) == '{"query": "cats", "limit": 3}'
    assert search.text({"query": "cats"}, "tool search", 5.0, most=4) == '{"qu'
    with pytest.raises(LookupError, match="nothing found"):
        search.text({"query": "fail"}, "tool search", 5.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        search.text({"query": "", "colour": 1}, "tool search", 5.0)
    with pytest.raises(Overtime, match=r"tool search did not return within 0\.5 s"):
        search.text({"query": "hang"}, "tool search", 0.5)
    assert search.text({"query": "after"}, "tool search", 5.0).startswith('{"query": "after"')


def test_objects_keep_their_own_state_and_are_called_side_by_side(file: Path) -> None:
    made = [counters(file, 60.0)(start) for start in range(16)]
    assert made[3].max_turns == 5
    assert [one.step("go") for one in made] == [("GO", (start + 1) / 3, start >= 4) for start in range(16)]
    assert made[0].step("on") == ("ON", 2 / 3, False)
    assert made[0].count == 2, "attributes are as they are now"
    assert str(inspect.signature(made[0].paid)) == "(kind=None)"
    assert [made[0].paid(), made[1].paid("InfraFault")] == [Score(0.1), InfraFault("broken")]
    with pytest.raises(AttributeError, match="no attribute 'leap'"):
        made[0].leap()
    begin = time.monotonic()
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda one: one.sleep(0.2), made))
        assert list(threads.map(lambda one: one.wait(0.2), made)) == [2, *range(2, 17)]
    assert time.monotonic() - begin < 4.0, "one after another they take 6.4 s"


def test_a_call_that_overruns_loses_its_object_and_no_other(file: Path) -> None:
    slow, other = (counters(file, 0.5)() for _ in range(2))
    with pytest.raises(Overtime, match=r"Counter\.sleep did not return"):
        slow.sleep(30.0)
    assert other.step("go")[0] == "GO"
    with pytest.raises(Lost, match="has not answered before"):
        slow.step("go")
    assert counters(file)().sleep(0.0) != other.sleep(0.0), "the worker takes nothing further"
    slow.release()
    other.release()


def test_an_object_that_is_collected_while_a_call_is_written_holds_nothing_up(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, left = (counters(file)() for _ in range(2))
    asked, told, written = kept._target, list[Request](), frames.write_frame

    def collecting(pipe: int, message: bytes, check: Any) -> None:
        told.append(pickle.loads(message))
        kept._worker.drop(left._target)  # what the garbage collector does at any line
        written(pipe, message, check)

    monkeypatch.setattr(process, "write_frame", collecting)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(kept.step, "go").result(20.0)[0] == "GO"
    monkeypatch.setattr(kept._worker, "drop", lambda target: None)
    assert kept.step("on")[0] == "ON"
    assert [(one.kind, one.target) for one in told] == [("method", asked), ("drop", left._target), ("method", asked)]
    with pytest.raises(KeyError, match=str(left._target)):
        left.step("the worker does not have it any more")


def test_objects_whose_worker_ends_are_lost_and_others_are_made(file: Path) -> None:
    first, second = (counters(file)() for _ in range(2))
    with pytest.raises(Unanswered, match=r"Counter\.end ended its process by signal 9"):
        first.end()
    with pytest.raises(Unanswered):
        second.step("go")
    assert counters(file)().step("go")[0] == "GO"


def test_a_function_inside_of_a_recipe_runs_in_a_worker_too(file: Path, tmp_path: Path) -> None:
    file.write_text(
        FILE
        + """
from dataclasses import replace
from assay.method import LANGUAGE, recipes
from assay.parts import FromFunction

def recipe(preset=LANGUAGE):
    return replace(recipes.grpo(preset), name="mine", rewards=(FromFunction(backtracks),))
"""
    )
    more: dict[str, Any] = {"steps": 1, "warmup": 0, "out": tmp_path / "run", "mode": Mode.SILENT}
    with pytest.raises(AssayError, match=r"backtracks did not return within 1 s"):
        assay.train(f"{file}:recipe", "addition-1", reward_timeout=1.0, **more)
    assert not (tmp_path / "run" / "config.json").exists(), "it is tried before anything is spent"


TOOLS = '''
import re, time

def search(query: str) -> str:
    """Searches."""
    return re.match(r"(a+)+$", query) and "found" or "nothing"

class Notes:
    """Notes."""
    def reset(self, seed: int):
        self.notes = []
    def add(self, note: str) -> str:
        """Adds a note."""
        self.notes.append(note)
        return f"{len(self.notes)} notes"
    def wait(self, seconds: float) -> str:
        """Waits."""
        time.sleep(seconds)
        return "done"
    def end(self) -> str:
        """Ends."""
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    @property
    def reward(self):
        return float(len(self.notes))
'''


def test_tools_of_files_run_in_workers_and_their_failures_are_faults_of_the_infrastructure(file: Path) -> None:
    file.write_text(TOOLS)
    rows = first_rows(addition(1))
    boxes = tools_of([f"{file}:search", f"{file}:Notes"], rows, SMALL, 1.0)
    use = with_tools(addition(1), boxes, 2, seconds=60.0).partner
    assert isinstance(use, ToolUse)
    item = use.item(0, 0)
    first, second = use.open(item, 0), use.open(item, 1)
    assert [one.reply(called("add", note="x")).text for one in (first, second, first)] == [
        TOOL_RESPONSE.format(f"{num} notes") for num in (1, 1, 2)
    ]
    assert first.opened[1].reward() == Score(2.0)
    assert first.reply(called("search", query="aaaa")).text == TOOL_RESPONSE.format("found")
    assert first.reply(called("search", query="a" * 40 + "b")).outcome == InfraFault("tool timeout")
    assert "2 notes" not in first.reply(called("add", note="y")).text, "the worker that was killed had the notes"
    third, fourth = use.open(item, 2), use.open(item, 3)
    assert third.reply(called("end")).outcome == InfraFault("tool process ended")
    assert fourth.reply(called("add", note="x")).outcome == InfraFault("tool process ended")
    fifth = use.open(item, 4)
    assert fifth.reply(called("add", note="x")).text == TOOL_RESPONSE.format("1 notes")
    assert fifth.reply(called("wait", seconds=30.0)).outcome == InfraFault("tool timeout")


def called(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_a_guard_that_is_killed_leaves_neither_a_worker_nor_a_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.close_all()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert function(file, "equal").rewards(ROWS, "it", 5.0) == [1.0, 0.0, 0.0]
    (worker,) = crew.current().alone.values()
    below = guard.descendants(worker.process.pid)
    os.kill(worker.process.pid, signal.SIGKILL)
    with pytest.raises(OwnCodeError, match="was in a worker process that was ended"):
        function(file, "waits").rewards(ROWS, "it", 30.0)
    assert function(file, "equal").rewards(ROWS, "it", 5.0) == [1.0, 0.0, 0.0], "the next call has a new worker"
    crew.close_all()
    assert not [one for one in below if alive(one)]
    assert not [*tmp_path.glob("assay-worker-*")]
