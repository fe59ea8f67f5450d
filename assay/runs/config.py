"""config.json of a run folder: reads it, checks its fields, compares it with a plan. Tensors have any shape."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core import store
from assay.core.errors import AssayError
from assay.runs.options.placement import PlacementOptions
from assay.runs.user_code.addresses import PYTHON

KINDS: dict[str, tuple[type, ...]] = {
    "method": (str, type(None)), "task": (str,), "steps": (int,), "seed": (int,), "settings": (dict,),
    "warmup": (int,), "device": (str,), "micro_batch": (int,), "precision": (str,), "evaluate_every": (int,),
    "save_every": (int,), "model": (str, type(None)),
}  # fmt: skip
"""Fields that config.json needs so that a run can be resumed."""


def is_file_record(value: Any) -> bool:
    """Returns whether a value is {"path": ..., "hash": ...}."""
    return isinstance(value, dict) and {"path", "hash"} <= set(value)


OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "options": lambda value: isinstance(value, dict),
    "cadence": lambda value: isinstance(value, dict),
    "data": lambda value: isinstance(value, list) and all(map(is_file_record, value)),
    "start": is_file_record,
    "more_steps": lambda value: type(value) is int and value >= 0,
}
"""Fields that config.json may have, and whether a value is one that a run writes."""


def read_config(path: Path) -> dict[str, Any]:
    """Returns config.json after checking its fields."""
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read ({error}). Restore it, or start a new run.") from None
    if not isinstance(config, dict):
        raise AssayError(f"{path} is not the config.json of a run. Restore it, or start a new run.")
    written = str(config.get("assay", ""))
    if written.startswith("0.1."):
        again = f"Resume it with that version (pip install assay=={written})"
        raise AssayError(f"{path.parent} was written by assay {written}, whose runs this version cannot read. {again}")
    missing = set(KINDS) - set(config)
    if missing:
        raise AssayError(f"{path} lacks {', '.join(sorted(missing))}. Restore it, or start a new run.")
    for name, kinds in KINDS.items():
        if not isinstance(config[name], kinds) or isinstance(config[name], bool):
            raise AssayError(f"{path}: '{name}' is {config[name]!r}, which no run writes. Restore it.")
    for name, is_right in OPTIONAL.items():
        if name in config and not is_right(config[name]):
            raise AssayError(f"{path}: '{name}' is {config[name]!r:.60}, which no run writes. Restore it.")
    return config


def precision_of(name: str) -> torch.dtype | None:
    """Returns the dtype that config.json names."""
    found = getattr(torch, name.removeprefix("torch."), None)
    if name != "None" and not isinstance(found, torch.dtype):
        raise AssayError(f"config.json: 'precision' is '{name}', which is not a dtype of torch. Restore it.")
    return found


def differing(folder: Path, config: Mapping[str, Any]) -> str:
    """Returns where the config of a plan differs from the one in a run folder."""
    ignored = (
        "fingerprint", "machine", "assay", "save_every", "held_out", "cadence", "more_steps", "base_files",
        "versions", "accepted_code", *(one.name for one in fields(PlacementOptions) if not one.metadata["decisive"]),
    )  # fmt: skip
    there = {name: value for name, value in read_config(folder / "config.json").items() if name not in ignored}
    here = {name: value for name, value in config.items() if name not in ignored}
    paths = list(dict.fromkeys(named(path) for path in store.difference(there, here)))
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"different: {', '.join(paths[:3])}{more}" if paths else "its config.json was edited"


def named(path: str) -> str:
    """Returns the place of a setting in a config as a user calls it: own code by its file or function."""
    parts = path.split(".")
    if parts[0] != "code" or len(parts) == 1:
        return path
    source = ".".join(parts[1:])
    return f"the code of {source.partition(':')[2].partition('.')[0] if source.startswith(PYTHON) else source}"


def as_json(value: Any) -> Any:
    """Returns a description as JSON: an array as type, shape and a digest of its numbers; infinities as words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, torch.Tensor | np.ndarray):
        array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value)
        return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
    return value
