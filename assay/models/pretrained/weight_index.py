"""What the files of a model's weights say before they are read: names in the index, and the number of weights."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from assay.core.errors import AssayError

INDEX = "model.safetensors.index.json"
WIDTHS = ("hidden_size", "n_embd", "d_model")
"""Names of the width in a configuration."""
LENGTHS = ("vocab_size", "intermediate_size", "num_hidden_layers", "n_layer")
"""Names of numbers of which a model has at least so many rows of its width."""


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


def num_weights(folder: Path) -> int | None:
    """Returns the number of weights in the files of a folder, from their headers; None if one cannot be read."""
    try:
        found = 0
        for file in folder.glob("model*.safetensors"):
            with safe_open(file, framework="pt") as stored:
                found += sum(math.prod(stored.get_slice(name).get_shape()) for name in stored.keys())  # noqa: SIM118
        return found
    except (OSError, SafetensorError):
        return None  # loading says what is wrong with it


def too_large(folder: Path, config: Mapping[str, Any]) -> str:
    """Returns in words a size of config.json that needs more weights than the files hold; '' if there are enough.

    A network of the configuration is allocated before weights are compared, so that a vocabulary of 10^9 would fill
    the memory, or take minutes, before it is an error.
    """
    inner = config.get("text_config")
    sizes = {**config, **(inner if isinstance(inner, Mapping) else {})}
    width = max((sizes[name] for name in WIDTHS if type(sizes.get(name)) is int), default=1)
    there = num_weights(folder)
    for name in LENGTHS:
        many = sizes.get(name)
        if there is not None and type(many) is int and many * width > there:
            return f"{name} {many:,} and width {width:,} need {many * width:,} weights, its files hold {there:,}"
    return ""


def misfits(report: Mapping[str, Any]) -> list[str]:
    """Returns the weights that a loading report of transformers calls missing, of another shape, or unexpected."""
    columns = ("missing_keys", "mismatched_keys", "unexpected_keys")
    return [f"{column[:-5]} {name}" for column in columns for name in sorted(map(str, report[column]))]
