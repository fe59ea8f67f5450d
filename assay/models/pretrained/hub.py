"""Folders of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.core.extras import require


def downloaded(name: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Returns the local copy of OWNER/NAME at a revision, with the files that match; raises the hub's own errors."""
    hub = require("huggingface_hub", "language", "folders of the hub")
    return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
