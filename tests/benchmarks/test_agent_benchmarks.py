"""Benchmarks of agents, at sizes that take a moment: they run, and say what they compare."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import sandbox_load, tool_waiting, worker_overhead
from tests.sandbox.places import needs_boxes


def test_waiting_for_tools_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rows", "8", "--repeats", "1", "--width", "16", "--layers", "1"]
    monkeypatch.setattr(sys, "argv", ["tool_waiting", *words])
    tool_waiting.main()
    assert "each row counted to 4: True; tokens are the same: True" in capsys.readouterr().out


def test_what_a_worker_costs_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    worker_overhead.main()
    assert "overhead     median" in capsys.readouterr().out


@needs_boxes
def test_the_load_of_a_sandbox_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sandbox_load", "--seconds", "1", "--parallel", "4"])
    sandbox_load.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["runs"] > 0
    assert found["hostile rewarded"] == 0
