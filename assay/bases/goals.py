"""Bases that learn from play alone to reach any goal, or to do any task."""

from __future__ import annotations

from dataclasses import replace

from assay.actors.forward_backward import ForwardBackwardActor
from assay.actors.hierarchical import Hierarchical
from assay.critics.goals import ExpectileTd, GoalValue
from assay.critics.measures import MeasureLoss, Orthonormal
from assay.objectives.hindsight import ProposeSubgoal, TowardsSubgoal
from assay.objectives.measures import MaximizeMeasure
from assay.optimizers import Adam
from assay.recipe import Copy, Recipe, Stage
from assay.slots import CriticLoss
from assay.sources.relabelled import Ahead, Mixed, Play, Relabelled
from assay.worlds import CONTINUOUS, CONTROL, World

STEP = Adam(learning_rate=1e-3, clip_norm=0.0)


def ota(
    world: World = CONTROL, option: int = 5, discount: float = 0.95, high_discount: float = 0.95, far: float = 0.0
) -> Recipe:
    """OTA (arXiv:2505.12737): the value that subgoals are chosen by counts options of `option` steps; 1 is HIQL's.

    `far` is how distant the goals are on which `right_signs` is reported.
    """
    jump = Stage("high value", ("high_value",), critic=(ExpectileTd("high_value", high_discount),), optimizer=STEP)
    return Recipe(
        name="ota",
        actor=Hierarchical((64, 64)),
        critics={"value": GoalValue((64, 64)), "high_value": GoalValue((64, 64))},
        copies={"value_target": Copy("value", 0.02), "high_value_target": Copy("high_value", 0.02)},
        source=Relabelled(goals=Mixed(discount=discount)),
        stages=(
            Stage("value", ("value",), critic=(ExpectileTd("value", discount),), optimizer=STEP),
            replace(jump, source=Relabelled(goals=Mixed(discount=discount), jump=option)),
            Stage("low actor", ("actor",), (TowardsSubgoal(),), optimizer=STEP, source=Relabelled(goals=Ahead(10))),
            Stage(
                "high actor",
                trains=("actor",),
                objective=(ProposeSubgoal(far=far),),
                optimizer=STEP,
                source=Relabelled(goals=Mixed(current=0.0, future=1.0, discount=1.0), jump=10),
            ),
        ),
        steps=100,
    )


def forward_backward(world: World = CONTROL, conservative: tuple[CriticLoss, ...] = (), log: Play = Play()) -> Recipe:
    """Forward-backward representations (arXiv:2103.07945) of play; half of the tasks are goals anywhere in it."""
    terms: tuple[CriticLoss, ...] = (MeasureLoss(0.9), Orthonormal(), *conservative)
    step = Adam(learning_rate=1e-3, clip_norm=10.0)
    policy = Stage("policy", ("actor",), (MaximizeMeasure(),), optimizer=step)
    return Recipe(
        name="zero-shot-rl",
        actor=ForwardBackwardActor((64, 64)),
        copies={"target": Copy("actor", 0.05)},
        source=Relabelled(log, Mixed(current=0.0, future=0.0)),
        stages=(Stage("measure", ("actor",), critic=terms, optimizer=step), *([policy] if world is CONTINUOUS else [])),
        steps=100,
    )
