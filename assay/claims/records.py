"""The record of a method: its verdict, what became of its mutants and the settings of its recipes, in one file.

`assay/claims/records/KEY.json` of a built-in method, STEM.record.json beside the file of an own one. The verdict's
fields are those of the file; "mutants" holds the summary of the last trial of mutants, "settings" the settings of the
recipes (see `shipped`); either may be missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.runs import method_index
from assay.runs.method_names import method_address, method_key
from assay.runs.user_code.files import file_of

FOLDER = Path(__file__).with_name("records")
MUTANTS = "mutants"
SETTINGS = "settings"
BESIDE = (MUTANTS, SETTINGS)
"""Fields of a record that are not of the verdict."""


def record_path(name: str) -> Path:
    """Returns the file of a method's record."""
    own = method_address(name)
    if own is None:
        return FOLDER / f"{method_index.stem_of(method_key(name))}.json"
    return file_of(own.source).with_name(f"{own.stem}.record.json")


def read_record(path: Path) -> dict[str, Any]:
    """Returns what a record file holds; empty without a file."""
    return json.loads(path.read_text()) if path.is_file() else {}


def update_record(path: Path, fields: dict[str, Any], *, keep: tuple[str, ...]) -> Path:
    """Writes fields into a record file; of those that it holds, only `keep` stay."""
    from assay.core import store  # imports torch, which reading a record does not need

    kept = {name: value for name, value in read_record(path).items() if name in keep and name not in fields}
    store.write_text(path, json.dumps({**fields, **kept}, indent=1) + "\n")
    return path


def has_verdict(path: Path) -> bool:
    """Returns whether a record file holds a verdict."""
    return "claims" in read_record(path)


def read_verdict(name: str) -> dict[str, Any] | None:
    """Returns the verdict of a method's measured claims, if there is one."""
    record = read_record(record_path(name))
    return verdict_in(record) if "claims" in record else None


def verdict_in(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record's verdict."""
    return {name: value for name, value in record.items() if name not in BESIDE}
