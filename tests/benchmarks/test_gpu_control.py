"""The benchmark of control on a GPU, as a toy on the CPU: every part runs and counts what it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_control


def test_the_toy_runs_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rows.jsonl"
    words = ["--tiny", "--device", "cpu", "--most", "20", "--set", "policy.learning_rate=1e-3", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["gpu_control", *words])
    gpu_control.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert not [row for row in rows if "error" in row]
    same = [row for row in rows if row["part"] == "agreement"]
    assert [row["task"] for row in same] == ["cartpole", "pendulum"]
    assert all(row["observation"] <= 1e-6 and row["ends_that_differ"] == 0 and row["weights"] <= 1e-5 for row in same)
    fast = [row for row in rows if row["part"] == "speed"]
    assert all(row["trained_decisions_s"] > 0 and row["simulator_decisions_s"] > 0 for row in fast)
    (learned,) = (row for row in rows if row["part"] == "learn")
    assert learned["reached"] is (learned["held_out"] is not None)
    assert learned["decisions"] > 0


def test_a_part_that_fails_says_why_and_the_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys, "argv", ["x", "--tiny", "--device", "cpu", "--parts", "speed", "agreement", "--tasks", "hazards"]
        )
        gpu_control.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "on the CPU" in rows[1]["error"]
    assert [row["part"] for row in rows[2:]] == ["agreement", "agreement"]
