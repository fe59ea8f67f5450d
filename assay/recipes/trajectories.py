"""Base recipe of sequence models of logged episodes: a decision transformer."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe
from assay.models.bodies.trajectory import Trajectory
from assay.models.heads.bounded import Deterministic
from assay.models.heads.gaussian import Distribution
from assay.models.model import Policy
from assay.parts.sources.logged import Log
from assay.parts.sources.windows import Windows
from assay.recipes.imitation import bc
from assay.recipes.presets import CONTROL, Preset


def decision_transformer(
    preset: Preset = CONTROL, log: Log | None = None, length: int = 20, target: float | None = None, batch: int = 64
) -> Recipe:
    """Decision Transformer (arXiv:2106.01345): cloning of windows of a log by a transformer that reads returns-to-go;
    without a target it asks for the log's best return.
    """
    base, settings = bc(preset), preset.offline
    step = CONTROL.offline.optimizer if preset.tabular else settings.optimizer  # a table's rate is not a network's
    head = Distribution() if preset.discrete else Deterministic()
    source = Windows((log or settings.log,), batch, settings.updates, length=length)
    (stage,) = base.stages
    stages = (replace(stage, optimizer=replace(step, weight_decay=1e-4, clip_norm=0.25)),)
    actor, steps = Policy(Trajectory(length=length, target=target), head), settings.steps
    return replace(base, name="decision-transformer", actor=actor, source=source, stages=stages, steps=steps)
