"""Conditions on offline data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from assay.core.slots import Choice, Task


class Condition(Choice, Protocol):
    """What a method needs of its data. It is checked when the data are read, before the first update."""

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        """Raises AssayError if the method cannot learn from these transitions of the task."""
