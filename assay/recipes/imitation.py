"""Base recipes that learn from demonstrations or preferences."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Copy, Recipe, Stage
from assay.parts.credit.shaping import PairUp
from assay.parts.curricula.in_order import InOrder
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.preference import PreferencePair
from assay.parts.sources.demonstrations import DemonstratedDecisions, Demonstrations
from assay.recipes.presets import CONTROL, LANGUAGE, Preset


def sft(preset: Preset = LANGUAGE) -> Recipe:
    """Supervised fine-tuning: maximum likelihood of the task's demonstrations."""
    return Recipe(
        name="sft",
        actor=preset.actor,
        source=Demonstrations(batch=64),
        stages=(
            Stage(
                "likelihood",
                trains=("actor",),
                objective=(LogLikelihood(),),
                optimizer=replace(preset.optimizer, learning_rate=1e-3),
            ),
        ),
        steps=300,
    )


def bc(preset: Preset = CONTROL) -> Recipe:
    """Behaviour cloning: the same likelihood on expert episodes."""
    return replace(sft(preset), name="bc", source=DemonstratedDecisions(), steps=60)


def dpo(preset: Preset = LANGUAGE, beta: float = 0.1) -> Recipe:
    """DPO (arXiv:2305.18290) on pairs sampled on a verifiable task: best against worst of each group."""
    return Recipe(
        name="dpo",
        actor=preset.actor,
        copies={"reference": Copy(of="actor")},
        rollout=preset.group_rollout,
        curriculum=InOrder(),
        credit=(PairUp(),),
        source=preset.on_policy_source,
        stages=(Stage("preference", trains=("actor",), objective=(PreferencePair(beta),), optimizer=preset.optimizer),),
        steps=preset.steps,
    )
