"""The recipe of zero-shot-rl."""

from __future__ import annotations

from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.slots import CriticLoss
from assay.methods.zero_shot_rl.losses import MaximizeMeasure, MeasureLoss, Orthonormal
from assay.methods.zero_shot_rl.models import ForwardBackwardActor
from assay.models.model import Policy
from assay.parts.sources.relabelled import Mixed, Play, Relabelled
from assay.recipes.defaults import CONTROL, Defaults


def forward_backward(
    world: Defaults = CONTROL, conservative: tuple[CriticLoss, ...] = (), log: Play = Play()
) -> Recipe:
    """Forward-backward representations (arXiv:2103.07945) of play data; half of the tasks are goals anywhere in it."""
    terms: tuple[CriticLoss, ...] = (MeasureLoss(0.9), Orthonormal(), *conservative)
    step = Adam(learning_rate=1e-3, clip_norm=10.0)
    policy = Stage("policy", ("actor",), (MaximizeMeasure(),), optimizer=step)
    return Recipe(
        name="zero-shot-rl",
        actor=Policy(head=ForwardBackwardActor()),
        copies={"target": Copy("actor", 0.05)},
        source=Relabelled(log, Mixed(current=0.0, future=0.0)),
        stages=(Stage("measure", ("actor",), critic=terms, optimizer=step), *([] if world.discrete else [policy])),
        steps=100,
    )
