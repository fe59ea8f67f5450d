"""TensorBoard and Weights & Biases: the real packages where they are installed, a stand-in, and their absence."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from assay.core.errors import AssayError
from assay.runs.sinks import Sink, TensorBoardSink, WandbSink


def fill(sink: Sink, steps: range, gain: float = 1.0) -> None:
    for step in steps:
        sink.write(step, {"reward": gain * step, "loss": float("nan")})
    sink.close()
    sink.close()


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_shows_every_step_once_after_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fill(TensorBoardSink(tmp_path), range(5))
    fill(TensorBoardSink(tmp_path, first_step=3), range(3, 6), gain=10.0)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    shown = [(event.step, event.value) for event in events.Scalars("reward")]
    assert shown == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 50.0)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    fill(WandbSink("assay", {"seed": 0}, folder=tmp_path, run_id="abc"), range(3))
    assert list(tmp_path.glob("wandb/offline-run-*-abc/*.wandb"))


class Refused(Exception):
    """What a stand-in for wandb raises."""


def stand_in(monkeypatch: pytest.MonkeyPatch, *, refuses: bool = False) -> list[tuple[str, Any]]:
    """Puts a wandb in place that writes down what it is told."""
    told: list[tuple[str, Any]] = []

    def init(**options: Any) -> SimpleNamespace:
        if refuses:
            raise Refused("no key")
        told.append(("init", options))
        log = lambda metrics, step: told.append(("log", (step, metrics)))  # noqa: E731
        return SimpleNamespace(log=log, finish=lambda: told.append(("finish", None)))

    wandb = ModuleType("wandb")
    wandb.__dict__.update(init=init, Error=Refused, Settings=lambda **settings: settings)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return told


def test_wandb_is_told_of_the_run_and_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    told = stand_in(monkeypatch)
    sink = WandbSink("assay", {"seed": 0}, folder="runs", name="grpo", run_id="abc")
    sink.write(3, {"reward": 1})
    sink.close()
    sink.close()
    options = told[0][1]
    assert (options["project"], options["config"], options["name"]) == ("assay", {"seed": 0}, "grpo")
    assert (options["id"], options["resume"], options["dir"]) == ("abc", "allow", "runs")
    assert told[1:] == [("log", (3, {"reward": 1.0})), ("finish", None)]


def test_wandb_that_refuses_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, refuses=True)
    with pytest.raises(AssayError, match=r"'assay' \(no key\)\. Log in with `wandb login`, or set WANDB_MODE=offline"):
        WandbSink("assay", {})


def test_missing_packages_name_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("tensorboard", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(AssayError, match=r"tensorboard is needed for .*\. Install it: pip install 'assay\[scale\]'"):
        TensorBoardSink(tmp_path / "events")
    with pytest.raises(AssayError, match=r"wandb is needed for .*\. Install it: pip install 'assay\[scale\]'"):
        WandbSink("assay", {}, folder=tmp_path / "wandb")
    assert list(tmp_path.iterdir()) == []
