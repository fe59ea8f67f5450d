"""Parses options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence

from assay.core.errors import AssayError


def parsed_settings(words: Sequence[str]) -> dict[str, str]:
    """Parses `--set a.b=c` into a dict."""
    settings: dict[str, str] = {}
    for word in words:
        path, sign, value = word.partition("=")
        if not sign or not path or not value:
            raise AssayError(
                f"--set {word} is not of the form part.field=value. Example: --set optimizer.learning_rate=0.001"
            )
        settings[path.strip()] = value.strip()
    return settings
