"""Weights that undo how often replay draws a transition. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import Aggregation


@dataclass(frozen=True)
class ByImportance(Aggregation):
    """Weights decisions by the column `importance` that `Prioritised` replay writes; counts them all alike.

    Degenerate: with importance 1, or without the column, it is TokenMean. Source: arXiv:1511.05952. Assumes that the
    column undoes how often a decision is drawn.
    """

    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        return batch.weight * batch.column("importance") if "importance" in batch.extra else batch.weight

    def count(self, batch: Experience) -> Tensor:
        return batch.num_decisions
