"""Reads the fields of rows whose conversations begin with files: the files, and the commands of the solution."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay.core.errors import AssayError


def start_of(row: Mapping[str, Any], where: str) -> tuple[dict[str, str], list[str]]:
    """Reads the files at the beginning and the commands of the solution."""
    solution = row.get("solution", "")
    lines = [solution] if isinstance(solution, str) else solution
    if not isinstance(lines, list) or not all(isinstance(one, str) for one in lines):
        raise AssayError(f"{where}: 'solution' is {json.dumps(solution)[:60]}. It must be commands: a text, or a list")
    return files_of(row, "files", where), lines


def files_of(row: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    """Reads a field of files: path -> text."""
    value = row.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise AssayError(f"{where}: '{name}' is {json.dumps(value)[:60]}. It must be an object of paths and texts")
    if outside := [path for path in value if is_outside(path)]:
        raise AssayError(f"{where}: '{name}' has the path {outside[0]!r:.80}. Name a file in the folder")
    return value


def is_outside(path: str) -> bool:
    """Returns whether a path names no file of the folder."""
    return "\0" in path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/"))
