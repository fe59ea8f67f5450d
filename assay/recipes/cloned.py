"""Behaviour cloning of an offline dataset, a base of comparisons with methods that learn from the same rows."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe
from assay.parts.sources.logged import Log
from assay.recipes.conservative import logged
from assay.recipes.imitation import bc
from assay.recipes.presets import CONTINUOUS, Preset


def cloned(preset: Preset = CONTINUOUS, log: Log | None = None) -> Recipe:
    """Returns `bc` on the transitions of a dataset, with the batches, updates, steps and rate of offline methods.

    `bc` itself clones the task's scripted expert where no file is given, whatever dataset the task has.
    """
    found, step = bc(preset), preset.offline.optimizer
    stages = tuple(replace(stage, optimizer=step) for stage in found.stages)
    return replace(found, name="cloned", source=logged(preset, log), stages=stages, steps=preset.offline.steps)
