"""Options of environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.runs.options.group import Group


@dataclass(frozen=True)
class EnvironmentOptions(Group):
    """Options of environments."""

    title: ClassVar[str] = "control tasks"
