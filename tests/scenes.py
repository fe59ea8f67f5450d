"""Scenes for tests that call a part outside of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.core.record import Draw, Experience
from assay.core.slots import Scene
from assay.core.slots.scene import NO_STARTS


def gathering(task: Any, actor: Any, starts: np.ndarray = NO_STARTS, draw: Draw = Draw(0)) -> Scene:
    """What a rollout is called with: the acting policy and the starts that the curriculum chose."""
    return Scene(task, draw=draw, actor=actor, starts=starts)


def feeding(task: Any, fresh: Experience | None = None, draw: Draw = Draw(0)) -> Scene:
    """What a source is called with: what was just gathered."""
    return Scene(task, draw=draw, fresh=fresh)
