"""Saves and loads the state of a part, through the store that runs use."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

from assay.core import store
from assay.core.errors import AssayError
from assay.engine.loop import frozen, thawed


def saved_and_loaded(state: Any, fresh: Any) -> Any:
    """Returns the state after a save to disk and a load into the state of a new start."""
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        try:
            path = store.save(Path(folder), 0, {"state": frozen(state)}, facts={})
        except (TypeError, ValueError) as error:
            raise AssayError(f"its state cannot be saved: {error}") from error
        tree = store.load_path(path).tree
    return thawed(fresh, tree["state"])


def untouched(value: Any) -> Any:
    """Returns a deep copy; simulations are copied by their snapshots."""
    return copy.deepcopy(frozen(value))
