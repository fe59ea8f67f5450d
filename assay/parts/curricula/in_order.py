"""Curricula that take the task's starts in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.core.record import Experience, State
from assay.core.slots import Curriculum, Scene


@dataclass(frozen=True)
class InOrder(Curriculum):
    """Proposes starts 0, 1, 2, ...: each exactly once, in an order independent of crashes and the batch size."""

    def init(self, scene: Scene) -> State:
        """Returns ordinal 0."""
        return {"next": 0}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the next ordinals."""
        num_starts = scene.num_starts
        first = state["next"]
        state["next"] = first + num_starts
        return np.arange(first, first + num_starts, dtype=np.int64)

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Does nothing."""
