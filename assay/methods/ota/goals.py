"""Goals at a fixed distance. Axes: B rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.core.record import Draw
from assay.parts.sources.relabelled import Goals, Places


@dataclass(frozen=True)
class Ahead(Goals):
    """The state `steps` later in the episode, or its last one."""

    steps: int = 25

    def __call__(self, episode: np.ndarray, time: np.ndarray, last: np.ndarray, draw: Draw) -> Places:
        """Returns goals at the same distance for every row."""
        return Places(episode, np.minimum(time + self.steps, last[episode]), np.ones_like(time, dtype=bool))
