"""Files of settings in the folder of a pretrained model: JSON objects whose entries have the types that are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError


def settings_in(file: Path, kinds: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """Returns the settings in a file, {} without the file; AssayError if it is no JSON object, or if an entry of
    `kinds` has another type. An entry that is null is left out.
    """
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{file} cannot be read: {error}. Restore it") from None
    if not isinstance(found, dict):
        raise AssayError(f"{file} is not a JSON object. Restore it")
    told = {name: value for name, value in found.items() if value is not None}
    for name, kind in kinds.items():
        if name in told and not isinstance(told[name], kind):
            raise AssayError(f"{file}: {name!r} is {told[name]!r:.60}, which no model has. Restore it")
    return told


def texts_of(settings: Mapping[str, Any], name: str, file: Path) -> list[str]:
    """Returns a list of texts among settings, [] if it is missing; AssayError if one is no text."""
    found: list[str] = settings.get(name, [])
    if wrong := next((one for one in found if not isinstance(one, str)), None):
        raise AssayError(f"{file}: {name!r} holds {wrong!r:.60}, which is no text. Restore it")
    return found
