"""Base recipes that learn from demonstrations or preferences."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Copy, Recipe, Stage
from assay.parts.credit.shaping import PairUp
from assay.parts.curricula.in_order import InOrder
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.preference import PreferencePair
from assay.parts.sources.demonstrations import DemonstratedDecisions, Demonstrations
from assay.recipes.defaults import CONTROL, LANGUAGE, Defaults


def sft(world: Defaults = LANGUAGE) -> Recipe:
    """Supervised fine-tuning: maximum likelihood of the task's demonstrations."""
    return Recipe(
        name="sft",
        actor=world.actor,
        source=Demonstrations(batch=64),
        stages=(
            Stage(
                "likelihood",
                trains=("actor",),
                objective=(LogLikelihood(),),
                optimizer=replace(world.optimizer, learning_rate=1e-3),
            ),
        ),
        steps=300,
    )


def bc(world: Defaults = CONTROL) -> Recipe:
    """Behaviour cloning: the same likelihood on expert episodes."""
    return replace(sft(world), name="bc", source=DemonstratedDecisions(), steps=60)


def dpo(world: Defaults = LANGUAGE, beta: float = 0.1) -> Recipe:
    """DPO (arXiv:2305.18290) on pairs sampled on a verifiable task: best against worst of each group."""
    return Recipe(
        name="dpo",
        actor=world.actor,
        copies={"reference": Copy(of="actor")},
        rollout=world.episodes,
        curriculum=InOrder(),
        credit=(PairUp(),),
        source=world.once,
        stages=(Stage("preference", trains=("actor",), objective=(PreferencePair(beta),), optimizer=world.optimizer),),
        steps=world.steps,
    )
