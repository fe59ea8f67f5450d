"""Packages of the extras, imported when a test first uses them, so that collecting tests does not load them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Optional:
    """A package that may be missing: its first use imports it, or skips the test."""

    name: str
    reason: str = "the extra 'language' is not installed"

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for these while it collects
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self.name, reason=self.reason), attribute)
