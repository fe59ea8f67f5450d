"""Asked to stop, a run saves, says how to go on and leaves with the signal's exit code; going on changes nothing."""

from __future__ import annotations

import importlib.util
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main as cli
from assay.core import store
from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.models.heads.categorical import SoftmaxTable
from assay.runs import result as result_of_run
from assay.runs import run
from assay.runs.folder import METRICS, read_metrics, read_samples, without_time
from assay.runs.progress import Mode
from assay.runs.signals import resume_command
from tests import warm

DEADLINE = 120.0
CARTPOLE = ["ppo", "--task", "cartpole", "--steps", "80", "--set", "policy.learning_rate=1e-6"]
CARTPOLE += ["--set", "rollout.num_envs=4", "--set", "rollout.steps=8", "--set", "source.epochs=1"]
TOKENS = ["grpo", "--task", "addition-1", "--steps", "4", "--warmup", "60"]
TOKENS += ["--set", "rollout.num_starts=2", "--set", "rollout.group_size=2"]
TOKENS += ["--set", "actor.width=8", "--set", "actor.layers=1", "--set", "actor.heads=2"]
GYMNASIUM = ["a2c", "--task", "CartPole-v1", "--steps", "60"]
GYMNASIUM += ["--set", "rollout.num_envs=3", "--set", "rollout.steps=8"]


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    """Ctrl-C is heard: a job in the background of a shell ignores it, and so would its runs, which is right."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------------------------------------------- real processes
@contextmanager
def started(*words: str) -> Iterator[warm.Process]:
    """The command line in a process of its own, which is gone afterwards."""
    process = warm.Process(warm.COMMAND, *words)
    try:
        yield process
    finally:
        process.kill()
        process.ended()


def ended(process: warm.Process) -> tuple[int, str]:
    """(exit code, stderr) of a process that ends by itself."""
    code, _, errors = process.ended(DEADLINE)
    return code, errors


def wait_for_lines(process: warm.Process, folder: Path, num: int) -> None:
    """Until so many lines of metrics are there; a process that has ended before is a failure."""
    deadline, path = time.monotonic() + DEADLINE, folder / METRICS
    while not path.exists() or path.read_bytes().count(b"\n") < num:
        assert process.poll() is None, f"the run ended before it was asked to: {process.ended()}"
        assert time.monotonic() < deadline, f"no {num} lines in {path} in time"
        time.sleep(0.005)


def result(folder: Path) -> dict[str, Any]:
    """What a run leaves behind, without what a clock said."""
    loaded = store.load(folder / "checkpoints")
    assert loaded is not None
    assert not loaded.skipped
    return {
        "loop": loaded.tree["loop"],
        "scores": loaded.tree["scores"],
        "metrics": without_time(read_metrics(folder)),
        "samples": read_samples(folder),
    }


def check_stopped(process: warm.Process, folder: Path, number: int) -> None:
    """The signal's exit code, one sentence that says how to go on, and a valid checkpoint before the end."""
    code, errors = ended(process)
    assert code == 128 + number, errors
    assert errors.strip().splitlines() == [f"assay: stopped and saved. Resume with: assay resume {folder}"]
    assert not (folder / "README.md").exists()


def resume_apart(folder: Path) -> None:
    """`assay resume` in a process of its own, which says nothing on stderr."""
    with started("resume", str(folder)) as process:
        assert ended(process) == (0, "")


def check_same_end(folder: Path, words: list[str], untouched: Path) -> None:
    """Everything equals a run that was not stopped."""
    assert cli.main(["train", *words, "--out", str(untouched), "--json"]) == 0
    assert not store.difference(result(untouched), result(folder))
    assert (folder / "README.md").exists()


def test_sigterm_saves_and_resuming_equals_the_untouched_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "stopped"
    words = ["train", *CARTPOLE, "--out", str(folder)]
    with started(*words) as process:
        wait_for_lines(process, folder, 5)
        process.send_signal(signal.SIGSTOP)
        assert cli.main(words) == 2, "a second run in the same folder"
        errors = capfd.readouterr().err
        assert errors.startswith(f"assay: {folder} is in use by process {process.pid} on ")
        assert errors.count("\n") == 1
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        check_stopped(process, folder, signal.SIGTERM)
    step = store.load(folder / "checkpoints").step
    assert 4 <= step < 80
    assert len(read_metrics(folder)) == step + 1
    resume_apart(folder)
    check_same_end(folder, CARTPOLE, tmp_path / "untouched")


def test_a_signal_while_a_step_is_ended_stops_at_a_step_that_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([0])
    monkeypatch.setattr(run, "stop_signals", lambda: nullcontext(lambda: next(seen, int(signal.SIGINT))))
    with pytest.raises(run.Stopped, match="stopped and saved"):
        run.train("reinforce", "bandit", steps=9, out=tmp_path / "run", evaluations=0)
    assert store.load(tmp_path / "run" / "checkpoints").step == 2


def test_ctrl_c_in_the_warm_up_names_the_folder_of_the_whole_run(tmp_path: Path) -> None:
    folder, untouched = tmp_path / "stopped", tmp_path / "untouched"
    with started("train", *TOKENS, "--out", str(folder), "--json") as process:
        wait_for_lines(process, folder / run.PHASE, 4)
        process.send_signal(signal.SIGINT)
        check_stopped(process, folder, signal.SIGINT)
    assert not (folder / "checkpoints").exists()
    assert cli.main(["resume", str(folder), "--json"]) == 0
    check_same_end(folder, TOKENS, untouched)
    assert not store.difference(result(untouched / run.PHASE), result(folder / run.PHASE))


@pytest.mark.skipif(importlib.util.find_spec("gymnasium") is None, reason="gymnasium is not installed")
def test_a_gymnasium_run_stopped_by_ctrl_c_goes_on_to_the_same_end(tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    with started("train", *GYMNASIUM, "--out", str(folder)) as process:
        wait_for_lines(process, folder, 8)
        process.send_signal(signal.SIGINT)
        check_stopped(process, folder, signal.SIGINT)
    assert cli.main(["resume", str(folder), "--json"]) == 0
    check_same_end(folder, GYMNASIUM, tmp_path / "untouched")


def test_a_killed_process_does_not_leave_the_folder_locked(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    with started("train", *CARTPOLE, "--out", str(folder)) as process:
        wait_for_lines(process, folder, 3)
        process.kill()
        assert ended(process)[0] == -signal.SIGKILL
    with store.lock(folder):
        pass


# ---------------------------------------------------------------------------------------------------- in this process
BANDIT = ["train", "reinforce", "--task", "bandit", "--steps", "6", "--save-every", "1steps"]


@pytest.fixture
def _heard() -> Iterator[None]:
    """Handles signals as a process at a terminal does; one in the background, or under nohup, ignores some of them."""
    handlers = dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.SIG_DFL)
    handlers[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def at_step(number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Does something once, at the begin of a step."""
    original, waiting = Loop.step, [True]

    def step(loop: Loop) -> Any:
        if loop.progress.step == number and waiting:
            waiting.clear()
            act()
        return original(loop)

    monkeypatch.setattr(Loop, "step", step)


@pytest.mark.usefixtures("_heard")
def test_the_step_that_was_under_way_is_finished_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(3, lambda: signal.raise_signal(signal.SIGTERM), monkeypatch)
    with pytest.raises(run.Stopped) as stopped:
        run.train("reinforce", "bandit", steps=6, out=tmp_path / "run", mode=Mode.SILENT)
    assert stopped.value.exit_code == 143
    assert store.load(tmp_path / "run" / "checkpoints").step == 4


@pytest.mark.usefixtures("_heard")
def test_a_second_ctrl_c_stops_at_once_and_still_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    at_step(3, twice, monkeypatch)
    assert cli.main([*BANDIT, "--out", str(tmp_path / "run")]) == 130
    assert capfd.readouterr().err == (
        "assay: interrupted; steps after the last checkpoint will be repeated. "
        f"Resume with: assay resume {tmp_path / 'run'}\n"
    )
    assert store.load(tmp_path / "run" / "checkpoints").step == 3
    assert cli.main(["resume", str(tmp_path / "run")]) == 0


@pytest.mark.usefixtures("_heard")
def test_a_signal_while_the_last_words_are_written_stops_the_seeds_that_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(result_of_run, "draw_curve", lambda finished: signal.raise_signal(signal.SIGTERM))
    assert cli.main([*BANDIT, "--seeds", "3", "--jobs", "1", "--out", str(tmp_path / "runs")]) == 143
    assert "stopped after it had finished" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["seed-0"]


@pytest.mark.usefixtures("_heard")
def test_signals_are_as_they_were_after_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    run.train("reinforce", "bandit", steps=1, out=tmp_path / "a", mode=Mode.SILENT)
    at_step(0, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    with pytest.raises(AssayError):
        run.train("reinforce", "bandit", steps=2, out=tmp_path / "b", mode=Mode.SILENT)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.usefixtures("_heard")
def test_a_signal_that_is_ignored_does_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    at_step(3, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    run.train("reinforce", "bandit", steps=6, out=tmp_path / "run", mode=Mode.SILENT)
    assert store.load(tmp_path / "run" / "checkpoints").step == 6
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_stop_by_a_guard_has_its_own_exit_code_and_the_state_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    honest = SoftmaxTable.act

    def shifted(actor: SoftmaxTable, context: Any, uniform: Any) -> Any:
        action, logp = honest(actor, context, uniform)
        return action, logp - 0.1

    monkeypatch.setattr(SoftmaxTable, "act", shifted)
    assert cli.main([*BANDIT, "--out", str(tmp_path / "run")]) == 3
    errors = capfd.readouterr().err
    assert errors.startswith("assay: a guard stopped the run")
    assert errors.count("\n") == 1
    assert store.load(tmp_path / "run" / "checkpoints").step == 1


def test_a_phase_is_resumed_by_its_run_and_an_own_recipe_by_its_call(tmp_path: Path) -> None:
    """A phase is refused by `assay resume`, and a recipe of Python by the shell."""
    phase = tmp_path / "run" / "phase-1-warmup"
    phase.mkdir(parents=True)
    for folder, method in ((tmp_path / "run", "grpo"), (phase, None), (tmp_path, None)):
        (folder / "config.json").write_text(json.dumps({"method": method}))
    assert resume_command(phase) == resume_command(tmp_path / "run") == f"assay resume {tmp_path / 'run'}"
    assert resume_command(phase, accept=True).endswith("run --accept-changed-code")
    assert resume_command(tmp_path) == f"the same assay.train call with out='{tmp_path}'"
