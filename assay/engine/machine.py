"""Describes this machine and configures PyTorch for small models on it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.ops.bfloat16 import lacks_bfloat16

SMALL = 800_000
"""Models with fewer parameters run on one thread, since their layers are too small to split, and without oneDNN."""


def describe_machine() -> dict[str, Any]:
    """Returns machine and versions, for run folders and verdicts."""
    return {
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@contextmanager
def tuned(num_parameters: int, threads: int | None = None, *, bfloat16: bool = False, shards: int = 1) -> Iterator[int]:
    """Sets threads and oneDNN for models of this size and restores them afterwards; yields the number of threads.

    With `shards` a process has its share of the threads, whatever the ranks: sums over threads depend on their number.
    `bfloat16`: the models compute in it on the CPU (`Engine.bfloat16`), which not every CPU's oneDNN supports.
    """
    before = torch.get_num_threads(), torch.backends.mkldnn.enabled
    # Several threads on small layers cost more than they save.
    chosen = threads if threads is not None else (1 if num_parameters < SMALL else max(1, before[0] // shards))
    torch.set_num_threads(chosen)
    has_onednn = num_parameters >= SMALL and not (bfloat16 and lacks_bfloat16())
    torch.backends.mkldnn.enabled = has_onednn  # type: ignore[assignment]
    try:
        yield chosen
    finally:
        torch.set_num_threads(before[0])
        torch.backends.mkldnn.enabled = before[1]


WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""The variable of cuBLAS's scratch memory; it is read before the first product on a GPU."""
UNREPEATABLE = "does not have a deterministic implementation"


@contextmanager
def repeatable(is_wanted: bool) -> Iterator[None]:
    """Uses only kernels that give the same bits when they are run again, where that is wanted; restores it afterwards.

    Concerned are attention's backward pass, sums over indices, and compiled reductions whose tiles would be chosen by
    a clock. AssayError if something has no such kernel. Enter it before anything is computed on a GPU.
    """
    if not is_wanted:
        yield
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # Filling is for finding reads of memory that was never written; it would cost a kernel for every tensor.
    memory.fill_uninitialized_memory = False
    try:
        yield
    except RuntimeError as error:
        if UNREPEATABLE not in str(error):
            raise
        what = str(error).split(UNREPEATABLE)[0].strip()
        raise AssayError(f"--deterministic: {what} has no deterministic kernel on this device. Remove it") from error
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]
