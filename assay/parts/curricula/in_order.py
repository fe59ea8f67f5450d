"""Curricula that take the task's starts as they come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.core.record import Draw, Experience, State
from assay.core.slots import Curriculum


@dataclass(frozen=True)
class InOrder(Curriculum):
    """Starts 0, 1, 2, ...: every start exactly once, in an order that no crash or batch size can change."""

    def init(self) -> State:
        """The next ordinal."""
        return {"next": 0}

    def __call__(self, num_starts: int, draw: Draw, state: State) -> np.ndarray:
        """The next ordinals."""
        first = state["next"]
        state["next"] = first + num_starts
        return np.arange(first, first + num_starts, dtype=np.int64)

    def observe(self, experience: Experience, state: State) -> None:
        """Nothing to learn."""
