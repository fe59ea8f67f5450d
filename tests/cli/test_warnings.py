"""Warnings of commands: one line each, once."""

from __future__ import annotations

import argparse
import warnings

import pytest

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
