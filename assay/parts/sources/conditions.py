"""Conditions on offline data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Choice, Task


class Condition(Choice, Protocol):
    """What a method needs of its data. It is checked when the data are read, before the first update."""

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        """Raises AssayError if the method cannot learn from these transitions of the task."""


@dataclass(frozen=True)
class Ends(Condition):
    """Data in which some decision is terminal, or none is; the reason tells users why, and what to use instead.

    Degenerate: data without rows have no terminal decision, so they are refused if `some` is true.
    """

    some: bool
    reason: str
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"some": True, "reason": "successes are needed. Use peg"},)

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        num = sum(int(columns["terminal"].any(1).sum()) for columns in datasets)
        if (num > 0) != self.some:
            raise AssayError(f"{num} decisions in the data of task '{task.name}' are terminal: {self.reason}")
