"""Whether the parts of a recipe refuse a task on which they cannot mean anything."""

from __future__ import annotations

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Scene, Task


def is_refused(recipe: Recipe, task: Task) -> bool:
    """Returns whether a reward, rollout, curriculum, selection, credit, constraint or source refuses the task when a
    run begins, before anything is computed.
    """
    gathering = (part for part in (recipe.rollout, recipe.curriculum, recipe.select) if part is not None)
    parts = (*recipe.rewards, *gathering, *recipe.credit, *recipe.constraints, *(feed.source for feed in recipe.feeds))
    try:
        for part in parts:
            part.init(Scene(task))
    except AssayError:
        return True
    return False
