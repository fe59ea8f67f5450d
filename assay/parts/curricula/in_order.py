"""Curricula that take the task's starts as they come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.core.record import Experience, State
from assay.core.slots import Curriculum, Scene


@dataclass(frozen=True)
class InOrder(Curriculum):
    """Starts 0, 1, 2, ...: every start exactly once, in an order that no crash or batch size can change."""

    def init(self, scene: Scene) -> State:
        """The next ordinal."""
        return {"next": 0}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """The next ordinals."""
        num_starts = scene.num_starts
        first = state["next"]
        state["next"] = first + num_starts
        return np.arange(first, first + num_starts, dtype=np.int64)

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Nothing to learn."""
