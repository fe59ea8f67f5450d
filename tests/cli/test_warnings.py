"""Warnings: one line each, once, of Python at the user's own line."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import pytest

import assay
from assay.cli import commands
from assay.cli.main import run_command
from assay.core.errors import DataWarning


def warns(options: argparse.Namespace) -> int:
    """Stands for a command that reads a file twice."""
    for place in range(2):
        warnings.warn("a.jsonl: in 3 of 9 rows the prompt contains the answer", DataWarning, stacklevel=1 + place)
        warnings.warn("the disk is slow", stacklevel=1 + place)
    return 0


@pytest.mark.parametrize(("command", "about_data"), [("train", 1), ("compare", 1), ("evaluate", 0), ("export", 0)])
def test_a_warning_is_said_once_and_one_about_data_when_the_run_is_planned(
    command: str, about_data: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "command_function", lambda name: warns)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run_command(argparse.Namespace(command=command)) == 0
    said = capsys.readouterr().err.splitlines()
    assert said.count("assay: the disk is slow") == 1
    assert said.count("assay: a.jsonl: in 3 of 9 rows the prompt contains the answer") == about_data


def test_from_python_a_warning_about_data_is_said_once_at_the_line_that_trains(tmp_path: Path) -> None:
    """The warm-up said it a second time, and each named a line inside the package."""
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(9) for b in range(9)]
    sizes = {"steps": 1, "warmup": 1, "prompts": 2, "max_tokens": 4, "eval_prompts": 4}
    small = {"actor.width": 8, "actor.layers": 1, "actor.heads": 2}

    def half(completions: list[str]) -> list[float]:
        return [0.5 for _ in completions]

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = assay.train("grpo", rows, reward=half, settings=small, out=tmp_path / "run", **sizes)  # type: ignore[arg-type]
        assay.evaluate(run, samples=2)
        assay.evaluate(run.folder, samples=2)
    about = [one for one in told if issubclass(one.category, DataWarning)]
    assert sorted(str(one.message).partition(" rows ")[2].partition(" ")[0] for one in about) == ["", "the"]
    assert {one.filename for one in about} == {__file__}
