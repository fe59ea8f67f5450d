"""MBPP on a tiny model with a few problems: scores before and after, and what passed the shown test alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.sandbox.grading import Grade
from assay.tasks.language.programs import PythonTests
from benchmarks import mbpp
from tests.models.test_transformers import save_qwen


def test_programs_that_know_the_shown_test_by_heart_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    tests = ["assert f(1) == 4", "assert f(2) == 5"]
    rows = [{"text": f"add {number}", "test_list": tests, "code": "def f(x): return x + 3"} for number in range(40)]
    path = tmp_path / "mbpp.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = iter(range(10**6))

    def grades(self: PythonTests, rows: list[dict[str, object]]) -> list[Grade]:
        """In turn: right, the shown test alone, nothing, no sandbox."""
        kinds = [Grade((True, True)), Grade((True, False)), Grade((False, False)), Grade(None, "lost")]
        return [kinds[next(said) % 4] for _ in rows]

    monkeypatch.setattr(PythonTests, "grades", grades)
    monkeypatch.setattr(mbpp, "code_of", lambda text: "def f(x): return 4")
    words = ["grpo", "--model", save_qwen(tmp_path / "model"), "--data", str(path), "--runs", str(tmp_path / "runs")]
    words += ["--steps", "1", "--max-tokens", "6", "--prompts", "2", "--group-size", "2", "--samples", "4"]
    words += ["--evaluations", "1", "--device", "cpu", "--out", str(tmp_path / "row.json")]
    assert mbpp.main(words) == 0
    row = json.loads((tmp_path / "row.json").read_text())
    assert row["before"]["problems"] == row["after"]["problems"] > 0
    for found in (row["before"], row["after"]):
        assert found["shown only"]["value"] == found["by heart"]["value"] == pytest.approx(0.25)
        assert found["faults of the sandbox"] == found["problems"]
    assert row["curve"]
