"""The user's own rewards, tools, judge and reward model, by file or import path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.runs.options.group import Group


@dataclass(frozen=True)
class OwnOptions(Group):
    """The user's own rewards, tools, judge and reward model, by file or import path."""

    title: ClassVar[str] = "your own code"
