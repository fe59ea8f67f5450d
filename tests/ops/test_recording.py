"""Graphs are recorded while nothing is collected."""

from __future__ import annotations

import gc
from contextlib import nullcontext

import pytest
import torch

from assay.ops.recording import record_graph


def test_nothing_is_collected_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, capture_error_mode: nullcontext())
    with record_graph(None):
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="lost"), record_graph(None):
        raise ValueError("lost")
    assert gc.isenabled(), "also after an error"


def test_a_collector_that_was_off_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, capture_error_mode: nullcontext())
    gc.disable()
    try:
        with record_graph(None):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
