"""Options of language tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.runs.options.group import Group


@dataclass(frozen=True)
class LanguageOptions(Group):
    """Options of language tasks."""

    title: ClassVar[str] = "language tasks"
