"""Cloning of a dataset by policies whose actions are the ends of paths (diffusion, flow), and its Gaussian rival."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe, Stage
from assay.core.slots import ActorHead
from assay.models.bodies.perceptron import Perceptron
from assay.models.model import Policy
from assay.parts.objectives.denoising import Denoising
from assay.parts.sources.logged import Log
from assay.recipes.conservative import logged
from assay.recipes.imitation import bc
from assay.recipes.presets import CONTINUOUS, Preset

WIDE = Perceptron((128, 128))
LEAST_STEPS = 1_000
"""Two modes are apart after 10,000 batches; after the 2,000 of the smallest preset they are not."""


def cloned_path(
    name: str, stage: str, head: ActorHead, preset: Preset = CONTINUOUS, log: Log | None = None
) -> Recipe:
    """Returns `Denoising` of a dataset's actions by a policy whose head walks a path, as stage `stage`."""
    loss = Stage(stage, trains=("actor",), objective=(Denoising(),), optimizer=preset.offline.optimizer)
    body = WIDE if preset.offline.body == Perceptron() else preset.offline.body
    steps = max(LEAST_STEPS, preset.offline.steps)
    return Recipe(name=name, actor=Policy(body, head), source=logged(preset, log), stages=(loss,), steps=steps)


def cloned_gaussian(preset: Preset = CONTINUOUS, log: Log | None = None) -> Recipe:
    """Returns the rival of cloned paths: bc's Gaussian on the same batches, as many and as wide."""
    base = bc(preset)
    ours = cloned_path(base.name, base.stages[0].name, base.actor.head, preset, log)  # type: ignore[attr-defined]
    (stage,) = base.stages
    actor = replace(base.actor, body=ours.actor.body)  # type: ignore[attr-defined, type-var]
    stage = replace(stage, optimizer=ours.stages[0].optimizer)
    return replace(base, actor=actor, source=ours.source, stages=(stage,), steps=ours.steps)
