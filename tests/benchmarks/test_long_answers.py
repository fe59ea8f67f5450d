"""The benchmark of long answers at toy size; no memory is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import long_answers


def test_methods_run_on_a_tiny_pretrained_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    run = long_answers.run

    def once(key: str, folder: Path, max_tokens: int, device: str) -> dict[str, Any]:
        """Only the long run is a process: importing transformers takes ten times as long as the steps."""
        return {"peak_mb": 1.0} if max_tokens == long_answers.SHORT else run(key, folder, max_tokens, device)

    monkeypatch.setattr(long_answers, "run", once)
    out = tmp_path / "found.json"
    assert long_answers.main(["nsr", "--max-tokens", "16", "--words", "320", "--out", str(out)]) == 0
    row = json.loads(out.read_text())["nsr"]
    assert (row["status"], row["tokens"], row["said"]) == (0, 16, "")
    assert row["peak_mb"] > 100
    assert row["share"] == pytest.approx((row["peak_mb"] - 1.0) / (4 * 16 * 320 * 4 / 2**20))
    assert long_answers.main(["--table", "--out", str(out)]) == 0
    assert "| nsr | 16 x 320 |" in capsys.readouterr().out
