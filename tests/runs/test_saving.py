"""Checkpoints are written in a thread, spaced by their cost, and bounded in time and on the disk."""

from __future__ import annotations

import shutil
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.core import store
from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.runs import library_versions as versions
from assay.runs import run, saving
from assay.runs.folder import read_metrics
from assay.runs.options import CadenceOptions, RunOptions
from assay.runs.options.cadence import spacing
from assay.runs.progress import Mode
from assay.runs.saving import LONGEST, SHORTEST, Saver, best_step

Usage = namedtuple("Usage", "free")
MINUTE = 60.0


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def trained(folder: Path, cadence: CadenceOptions = CadenceOptions(), **more: Any) -> run.Run:
    settings = {"rollout.num_starts": 2, "rollout.group_size": 2}
    told: dict[str, Any] = {"steps": 6, "out": folder, "settings": settings, "mode": Mode.SILENT}
    return run.train("reinforce", "bandit", options=RunOptions(cadence=cadence), **told | more)


def steps_in(folder: Path) -> list[int]:
    return store.saved_steps(folder / "checkpoints")


# ---------------------------------------------------------------------------------------------------- when
@pytest.mark.parametrize(("cost", "expected"), [(0.01, SHORTEST), (5.0, 100.0), (60.0, LONGEST)])
def test_saving_takes_a_twentieth_of_the_time_and_never_loses_more_than_ten_minutes(
    cost: float, expected: float
) -> None:
    clock = Clock()
    saver = Saver(Path("unused"), clock=clock)
    saver.start(0)
    saver.cost = cost
    assert saver.spacing == expected
    clock.now = expected - 0.5
    assert not saver.due(3, seconds=0.1)
    clock.now = expected
    assert saver.due(4, seconds=0.1)


def test_a_step_that_would_end_after_ten_minutes_is_preceded_by_a_checkpoint() -> None:
    clock = Clock()
    saver = Saver(Path("unused"), clock=clock)
    saver.start(10**12)
    clock.now = 7 * MINUTE
    assert not saver.due(1, seconds=2 * MINUTE)
    assert saver.due(1, seconds=4 * MINUTE)


def test_the_spacing_follows_the_measured_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, write = Clock(), store.save

    def slow(*arguments: Any, **options: Any) -> Path:
        clock.now += 4.0
        return write(*arguments, **options)

    monkeypatch.setattr(store, "save", slow)
    saver = Saver(tmp_path, clock=clock)
    saver.save(1, {"w": torch.ones(3)}, facts={})
    saver.wait()
    assert saver.spacing == pytest.approx(4.0 / saving.SHARE)


@pytest.mark.parametrize(
    ("text", "expected"), [("", (0, 0.0)), ("200steps", (200, 0.0)), ("10min", (0, 600.0)), ("90s", (0, 90.0))]
)
def test_the_spacing_is_a_time_or_a_number_of_steps(text: str, expected: tuple[int, float]) -> None:
    assert spacing(text) == expected


@pytest.mark.parametrize("text", ["10", "0steps", "1.5steps", "-3min", "min", "10 weeks"])
def test_another_spacing_is_refused_by_name(text: str) -> None:
    with pytest.raises(AssayError, match=f"--save-every is '{text}'"):
        CadenceOptions(save_every=text).check()


def test_steps_number_of_checkpoints_and_best_are_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path / "a", CadenceOptions(save_every="1steps", keep=3))
    assert steps_in(tmp_path / "a") == [4, 5, 6]
    trained(tmp_path / "b")
    assert steps_in(tmp_path / "b") == [6], "a short run is saved at its end"
    evaluate, scores = run.Worker.evaluate, {"0": 0.1, "2": 0.9, "4": 0.5, "6": 0.2}

    def fixed(worker: run.Worker, step: int, display: Any) -> dict[str, float]:
        evaluate(worker, step, display)
        worker.scores[str(step)] = [scores[str(step)]]
        return {"evaluation": scores[str(step)]}

    monkeypatch.setattr(run.Worker, "evaluate", fixed)
    trained(tmp_path / "c", CadenceOptions(save_every="1steps", keep=1, best=True, evaluations=3))
    assert steps_in(tmp_path / "c") == [2, 6]
    assert [run.load(tmp_path / "c", which)[2] for which in (None, "best", 2)] == [6, 2, 2]
    with pytest.raises(AssayError, match=r"no checkpoint of step 5; it has 2, 6"):
        run.load(tmp_path / "c", 5)
    assert best_step({"0": [1.0], "3": [1.0, 1.0]}) == 0


# ---------------------------------------------------------------------------------------------------- in a thread
def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, released, seen = store.save, threading.Event(), []

    def held(folder: Path, step: int, *arguments: Any, **options: Any) -> Path:
        assert threading.current_thread() is not threading.main_thread()
        assert released.wait(60)
        return write(folder, step, *arguments, **options)

    def after_step(step: int, metrics: Any, policy: Any) -> None:
        seen.append((step, steps_in(tmp_path / "run")))
        if step == 4:
            released.set()

    monkeypatch.setattr(store, "save", held)
    done = trained(tmp_path / "run", CadenceOptions(save_every="2steps"), steps=5, callbacks=(after_step,))
    assert seen[2:4] == [(3, []), (4, [])], "steps 3 and 4 are trained while step 2 is being written"
    monkeypatch.undo()
    again = trained(tmp_path / "again", CadenceOptions(save_every="2steps"), steps=5)
    for folder in ("run", "again"):
        assert steps_in(tmp_path / folder) == [4, 5]
    assert not store.difference(
        *(store.load_step(tmp_path / name / "checkpoints", 4).tree["loop"] for name in ("run", "again"))
    ), "what was saved is the state of its step, not of a later one"
    assert done.curve("reward") == again.curve("reward")


def test_an_error_of_the_thread_is_raised_in_the_loop_and_the_run_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store.save

    def failing(folder: Path, step: int, *arguments: Any, **options: Any) -> Path:
        if step == 4:
            raise store.CheckpointError("step-00000004 could not be written completely: No space left on device")
        return write(folder, step, *arguments, **options)

    monkeypatch.setattr(store, "save", failing)
    with pytest.raises(store.CheckpointError, match="No space left"):
        trained(tmp_path / "run", CadenceOptions(save_every="2steps"))
    assert steps_in(tmp_path / "run") == [2]
    monkeypatch.undo()
    assert trained(tmp_path / "run", CadenceOptions(save_every="2steps")).curves[-1]["step"] == 6


def test_a_large_state_is_written_without_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "available_memory", lambda: 100)
    saver = Saver(tmp_path)
    saver.save(1, {"w": torch.ones(100)}, facts={})
    assert saver.thread is None
    assert not saver.buffers
    assert saver.written == 1


# ---------------------------------------------------------------------------------------------------- the disk
def test_a_disk_without_room_is_refused_with_numbers_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1000))
    with pytest.raises(
        AssayError, match=r"checkpoints take up to 0.0 MB of disk .* 4 kept, 1 being written.*lower --keep"
    ):
        trained(tmp_path / "run", CadenceOptions(keep=3, best=True))
    assert not steps_in(tmp_path / "run")
    saver = Saver(tmp_path / "none", keep=2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(60e9))
    assert saver.check_disk(7_200_000_000) == (
        "checkpoints take up to 21.6 GB of 60.0 GB free: 7.2 GB each, 2 kept, 1 being written"
    )
    assert saver.check_disk(1000) == ""
    with pytest.raises(AssayError, match=r"up to 90.0 GB of disk \(30.0 GB each; 2 kept, 1 being written\)"):
        saver.check_disk(30_000_000_000)


# ---------------------------------------------------------------------------------------------------- resuming
def test_a_run_whose_checkpoints_were_removed_is_not_started_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    trained(folder)
    shutil.rmtree(folder / "checkpoints")
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(
        AssayError, match=r"the records of 6 steps and no checkpoint: .* Restore it, or remove the folder"
    ):
        run.resume(folder, mode=Mode.SILENT)
    assert (folder / "metrics.jsonl").read_bytes() == before
    (folder / "README.md").unlink()
    monkeypatch.setattr(Loop, "step", lambda loop: pytest.fail("trained again"))
    with pytest.raises(pytest.fail.Exception):
        run.resume(folder, mode=Mode.SILENT)  # no checkpoint was ever complete: starts from step 0
    assert [row["step"] for row in read_metrics(folder)] == [0]


def test_a_save_in_the_journal_shows_that_there_was_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trained(folder, CadenceOptions(save_every="1steps"))
    assert read_metrics(folder)[-1]["time"]["saved"] in (4, 5)
    (folder / "README.md").unlink()
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(AssayError, match="no checkpoint"):
        run.resume(folder, mode=Mode.SILENT)


def test_a_state_from_before_a_new_guard_gives_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    trained(folder)
    load = store.load

    def older(place: Path) -> store.Checkpoint | None:
        found = load(place)
        assert found is not None
        found.tree["loop"]["states"]["guards"][1].pop("constant")
        return found

    monkeypatch.setattr(store, "load", older)
    with pytest.raises(AssayError, match=r"step 6 .* does not fit this version of its parts \(KeyError: 'constant'\)"):
        run.resume(folder, mode=Mode.SILENT)


def test_another_version_of_a_library_is_named_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(step: int, metrics: Any, policy: Any) -> None:
        raise ValueError("now")

    with pytest.raises(AssayError, match=r"callback '.*stop' raised ValueError at step 1: now"):
        trained(tmp_path / "run", callbacks=(stop,))
    monkeypatch.setattr(versions, "__version__", "9.9")
    run.resume(tmp_path / "run", mode=Mode.PLAIN)
    assert "resumed with 9.9: its numbers may differ" in capsys.readouterr().out
