"""Judge models trained on preference pairs."""

from __future__ import annotations

from assay.core.optimizers import Adam
from assay.core.recipe import Recipe, Stage
from assay.models.bodies.transformer import Transformer
from assay.models.heads.score import TextScore
from assay.models.model import Critic
from assay.parts.critics.score import BradleyTerry
from assay.parts.sources.demonstrations import Pairs
from assay.recipes.presets import PREFERENCES, Preset


def preference_score(preset: Preset = PREFERENCES) -> Recipe:
    """Trains a transformer that scores completions on the task's preference pairs; the actor is not trained."""
    return Recipe(
        name="preference-score",
        actor=preset.actor,
        critics={"score": Critic(Transformer(64), TextScore())},
        source=Pairs(batch=64),
        stages=(Stage("score", trains=("score",), critic=(BradleyTerry("score"),), optimizer=Adam(1e-3)),),
        steps=200,
    )
