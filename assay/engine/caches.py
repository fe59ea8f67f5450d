"""Where compiled kernels are kept on disk, so that the next run on a machine does not compile them again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "ASSAY_CACHE"
"""The environment variable that names another folder for caches."""
COMPILER, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
"""The variables of torch.compile and of Triton, which both read when they first compile something."""


def cache_folder() -> Path:
    """Returns the folder of caches: $ASSAY_CACHE, else `assay` in the user's cache directory."""
    if own := os.environ.get(CACHE):
        return Path(own).expanduser().resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "assay"


def keep_compiled() -> None:
    """Lets torch.compile and Triton keep what they compile in our folder; variables that are set already stay as they
    are. A folder that cannot be written leaves both where they are by default.
    """
    try:
        folder = cache_folder() / "compile"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the latter: there is no home directory
        return
    if os.access(folder, os.W_OK):
        os.environ.setdefault(COMPILER, str(folder))
        os.environ.setdefault(TRITON, str(folder / "triton"))


def compiled_before() -> tuple[str, bool]:
    """Returns the folder in which torch.compile keeps its results, and whether there are any; "" for its default."""
    folder = os.environ.get(COMPILER, "")
    graphs = Path(folder) / "fxgraph"
    return folder, bool(folder) and graphs.is_dir() and any(graphs.iterdir())
