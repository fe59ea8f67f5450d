"""Weights as torch.distributed.checkpoint writes them, for programs with any number of ranks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import nn

from assay.core.errors import AssayError


def export_weights(policy: Any, target: Path) -> None:
    """Writes parameters and buffers by name into a new folder in the format of torch.distributed.checkpoint, which
    programs with any number of ranks load into their shards. Its metadata is a pickle: load only folders you trust.
    """
    if not isinstance(policy, nn.Module):
        raise AssayError(f"a policy of type {type(policy).__name__} has no weights of its own. Export without --dcp")
    if target.exists():
        raise AssayError(f"{target} exists already. Use a new folder")
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that there is one process, which is so
        state: dict[str, Any] = dict(policy.state_dict())
        save(state, storage_writer=FileSystemWriter(target), no_dist=True)
