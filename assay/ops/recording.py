"""Records CUDA graphs with the garbage collector paused."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def record_graph(graph: Any, pool: Any = None) -> Iterator[None]:
    """Enters `torch.cuda.graph` without garbage collection: an older graph in a reference cycle could be destroyed
    there, which CUDA refuses while another is recorded, and the recording would be lost. Other threads may use the
    device meanwhile (those that fetch weights do).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    finally:
        if was_enabled:
            gc.enable()
