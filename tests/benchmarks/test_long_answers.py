"""The benchmark of long answers at toy size; no memory is looked at."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from benchmarks import long_answers


@pytest.mark.filterwarnings("default")
def test_methods_run_on_a_tiny_pretrained_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that is measured writes down its command, which runs here: importing transformers in a process takes
    ten times as long as the steps.
    """
    pytest.importorskip("transformers")
    run, told = long_answers.run, tmp_path / "told"
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{told}"\necho done\n')
    stand_in.chmod(0o755)

    def once(key: str, folder: Path, max_tokens: int, device: str) -> dict[str, Any]:
        """Only the long run is a process."""
        if max_tokens == long_answers.SHORT:
            return {"peak_mb": 0.001}
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(stand_in))
            found = run(key, folder, max_tokens, device)
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            assert told.read_text().splitlines()[:2] == ["-m", "assay"]
            assert main(told.read_text().splitlines()[2:]) == 0
            assert (folder / "runs" / f"{key}-{max_tokens}" / "README.md").is_file()
        return found

    monkeypatch.setattr(long_answers, "run", once)
    out = tmp_path / "found.json"
    assert long_answers.main(["nsr", "--max-tokens", "16", "--words", "320", "--out", str(out)]) == 0
    row = json.loads(out.read_text())["nsr"]
    assert (row["status"], row["tokens"], row["said"]) == (0, 16, "")
    assert row["peak_mb"] > 0.001
    assert row["share"] == pytest.approx((row["peak_mb"] - 0.001) / (4 * 16 * 320 * 4 / 2**20))
    stand_in.write_text("#!/bin/sh\necho no memory\nexit 3\n")
    monkeypatch.setattr(sys, "executable", str(stand_in))
    failed = run("nsr", tmp_path, 16, "cpu")
    assert (failed["status"], failed["said"]) == (3, "no memory")
    assert long_answers.main(["--table", "--out", str(out)]) == 0
    assert "| nsr | 16 x 320 |" in capsys.readouterr().out
