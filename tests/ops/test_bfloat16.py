"""bfloat16 on any CPU: no warning (they are errors here), and oneDNN is as it was for what computes in float32."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.engine.machine import SMALL, tuned
from assay.ops import bfloat16
from assay.ops.bfloat16 import lacks_bfloat16, prepare_bfloat16, uses_bfloat16


def test_a_large_product_is_silent() -> None:
    prepare_bfloat16()
    before = torch.backends.mkldnn.enabled
    square = torch.ones(256, 256, dtype=torch.bfloat16)
    assert float(nn.functional.linear(square, square)[0, 0]) == 256.0
    assert torch.backends.mkldnn.enabled == before, "torch turned oneDNN off by itself"


@pytest.mark.parametrize("is_on", [True, False])
def test_asking_changes_nothing(is_on: bool) -> None:
    torch.backends.mkldnn.enabled = is_on
    lacks_bfloat16.cache_clear()
    lacks_bfloat16()
    assert torch.backends.mkldnn.enabled == is_on


@pytest.mark.parametrize("lacks", [True, False])
def test_large_models_in_float32_keep_onednn(lacks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.engine.machine.lacks_bfloat16", lambda: lacks)
    monkeypatch.setattr(bfloat16, "lacks_bfloat16", lambda: lacks)
    torch.backends.mkldnn.enabled = True
    prepare_bfloat16()
    assert torch.backends.mkldnn.enabled == (not lacks)
    with tuned(SMALL, threads=1):
        assert torch.backends.mkldnn.enabled
    with tuned(SMALL, threads=1, bfloat16=True):
        assert torch.backends.mkldnn.enabled == (not lacks)


def test_who_computes_in_bfloat16() -> None:
    wide, narrow = nn.Linear(2, 2), nn.Linear(2, 2).bfloat16()
    assert not uses_bfloat16([wide], None, "cpu")
    assert uses_bfloat16([wide], torch.bfloat16, "cpu")
    assert uses_bfloat16([wide, narrow], None, "cpu")
    assert not uses_bfloat16([narrow], torch.bfloat16, "cuda")
