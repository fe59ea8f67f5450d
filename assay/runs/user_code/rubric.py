"""A rubric in a file: criteria, for parts that pay by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError


def criteria_of(path: str) -> list[dict[str, Any]]:
    """Returns the criteria of a JSON file, a list of objects; AssayError names the file if it is something else."""
    file = Path(path)
    if not file.is_file():
        raise AssayError(f"--rubric: there is no file '{path}'. Check the path (relative to {Path.cwd()}).")
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AssayError(f"--rubric {path} cannot be read as JSON: {error}.") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(one, dict) for one in rows):
        raise AssayError(f'--rubric {path} must be a list of criteria: [{{"name": "...", "pattern": "..."}}, ...].')
    return rows
