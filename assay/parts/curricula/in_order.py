"""Curricula that take the task's starts in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.core.record import Draw, Experience, State
from assay.core.slots import Curriculum, RepeatingTask, Scene

ORDER = (1 << 40,)
"""The path of the random numbers that shuffle the rows of a file; no step of a run has this number."""


def next_starts(scene: Scene, state: State, number: int) -> np.ndarray:
    """Returns the next `number` training starts of a task, and counts them in `state`: 0, 1, 2, ..., or the rows of a
    file in an order that the run's seed shuffles in every pass (see `RepeatingTask`).
    """
    first = state["next"]
    state["next"] = first + number
    ordinals = np.arange(first, first + number, dtype=np.int64)
    task = scene.task
    return task.order(ordinals, Draw(scene.draw.seed, ORDER)) if isinstance(task, RepeatingTask) else ordinals


@dataclass(frozen=True)
class InOrder(Curriculum):
    """Proposes the task's starts in its order (`next_starts`): each exactly once, independent of crashes and of the
    batch size. Degenerate: if no start is requested, it proposes none and its place in the order stays.

    Source: by definition. Assumes that starts are numbered.
    """

    def init(self, scene: Scene) -> State:
        return {"next": 0}

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        return next_starts(scene, state, scene.num_starts)

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Does nothing."""
