"""Records CUDA graphs with the garbage collector paused."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def recorded(graph: Any, pool: Any = None) -> Iterator[None]:
    """Enters `torch.cuda.graph` without garbage collection: an older graph in a reference cycle could be destroyed
    there, which CUDA refuses while another is recorded, and the recording would be lost.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool):
            yield
    finally:
        if was_enabled:
            gc.enable()
