"""The index of a model whose weights are in several files."""

from __future__ import annotations

import json
from pathlib import Path

from assay.core.errors import AssayError

INDEX = "model.safetensors.index.json"


def foreign_shard(folder: Path) -> str:
    """Returns the first name in the index of weights that is not one of a file beside it, such as ../x; '' if there is
    none. AssayError if the index cannot be read.
    """
    file = folder / INDEX
    if not file.is_file():
        return ""
    try:
        names = [str(name) for name in json.loads(file.read_text())["weight_map"].values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise AssayError(f"{file} cannot be read. Restore it, or save the model with save_pretrained") from None
    return next((name for name in names if Path(name).name != name), "")
