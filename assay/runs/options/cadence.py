"""How often a run is evaluated and saved, and when it stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.runs.options.group import Group


@dataclass(frozen=True)
class CadenceOptions(Group):
    """How often a run is evaluated and saved, and when it stops."""

    title: ClassVar[str] = "evaluation and checkpoints"
