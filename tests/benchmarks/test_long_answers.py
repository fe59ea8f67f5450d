"""The benchmark of long answers at toy size; no memory is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import long_answers


def test_methods_run_on_a_tiny_pretrained_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(long_answers, "SHORT", 8)
    out = tmp_path / "found.json"
    assert long_answers.main(["nsr", "--max-tokens", "16", "--words", "320", "--out", str(out)]) == 0
    row = json.loads(out.read_text())["nsr"]
    assert (row["status"], row["tokens"], row["said"]) == (0, 16, "")
    assert row["peak_mb"] > 100
    assert long_answers.main(["--table", "--out", str(out)]) == 0
    assert "| nsr | 16 x 320 |" in capsys.readouterr().out
