"""CUDA graphs are recorded with the garbage collector at rest."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def recorded(graph: Any, pool: Any = None) -> Iterator[None]:
    """`torch.cuda.graph` in which nothing is collected: an older graph that only a cycle keeps would be ended there,
    which CUDA refuses while another is being recorded, and the recording would be lost.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool):
            yield
    finally:
        if was_enabled:
            gc.enable()
