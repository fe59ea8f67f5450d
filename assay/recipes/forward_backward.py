"""Forward-backward representations (arXiv:2103.07945): one model of the policies of all tasks, learned from play."""

from __future__ import annotations

from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.slots import CriticLoss
from assay.models.heads.forward_backward import ForwardBackwardActor
from assay.models.model import Policy
from assay.parts.critics.measures import MaximizeMeasure, MeasureLoss, Orthonormal
from assay.parts.sources.relabelled import Mixed, Play, Relabelled
from assay.recipes.presets import CONTROL, Preset


def forward_backward(
    preset: Preset = CONTROL, conservative: tuple[CriticLoss, ...] = (), log: Play = Play()
) -> Recipe:
    """Forward-backward representations (arXiv:2103.07945) of play data; half of the tasks are goals anywhere in it."""
    step = Adam(learning_rate=1e-3, clip_norm=10.0)
    stages = [Stage("measure", ("actor",), critic=(MeasureLoss(0.9), Orthonormal(), *conservative), optimizer=step)]
    if not preset.discrete:
        stages += [Stage("policy", ("actor",), (MaximizeMeasure(),), optimizer=step)]
    return Recipe(
        name="zero-shot-rl",
        actor=Policy(head=ForwardBackwardActor()),
        copies={"target": Copy("actor", 0.05)},
        source=Relabelled(log, Mixed(current=0.0, future=0.0)),
        stages=tuple(stages),
        steps=100,
    )
