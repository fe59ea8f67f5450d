"""Memory that does not suffice: what to change is said, and what was reached is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import assay
from assay.core.errors import AssayError
from assay.engine.loop import Loop, Step
from assay.engine.placement import Placement
from assay.runs.progress import Mode
from assay.runs.run import within_memory


def test_a_run_whose_device_is_full_says_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(loop: Loop) -> Step:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 MiB free.")

    monkeypatch.setattr(Loop, "step", full)
    message = r"out of memory on 'cpu' \(CUDA out of memory\).*--recompute.*lora\.rank"
    with pytest.raises(AssayError, match=message) as raised:
        assay.train("grpo", "addition-1", steps=1, warmup=0, out=tmp_path / "run", mode=Mode.SILENT)
    assert str(tmp_path / "run") in str(raised.value)
    assert (tmp_path / "run" / "config.json").is_file(), "what was there before the step is kept"


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (Placement("cuda"), "--tokens, now 16,384"),
        (Placement("cuda", tokens=4096), "--tokens, now 4,096"),
        (Placement("cuda", micro_batch=8), "--micro-batch, now 8"),
    ],
)
def test_the_setting_in_force_is_named(placement: Placement, words: str) -> None:
    with pytest.raises(AssayError, match=words), within_memory(placement, Path("runs/one")):
        raise torch.OutOfMemoryError("CUDA out of memory. More.")
