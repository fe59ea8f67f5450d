"""The recipe of ota."""

from __future__ import annotations

from dataclasses import replace

from assay.core.optimizers import Adam
from assay.core.recipe import Copy, Recipe, Stage
from assay.methods.ota.fits import ExpectileByTarget
from assay.methods.ota.goals import Ahead
from assay.methods.ota.models import GoalValue, Hierarchical
from assay.methods.ota.objectives import ProposeSubgoal, TowardsSubgoal
from assay.models.model import Critic, Policy
from assay.parts.critics.td import Td
from assay.parts.predictions import OfState
from assay.parts.sources.relabelled import Mixed, Relabelled
from assay.parts.targets.one_step import NextValue
from assay.recipes.defaults import CONTROL, Defaults

STEP = Adam(learning_rate=1e-3, clip_norm=0.0)


def goal_value(critic: str, discount: float) -> Td:
    """Returns the loss of V(s, g); the row's jump sets the length of a step, so s' may be many steps ahead."""
    copy = f"{critic}_target"
    return Td(NextValue(discount, copy), ExpectileByTarget(0.7, copy), OfState(critic))


def ota(
    world: Defaults = CONTROL, option: int = 5, discount: float = 0.95, high_discount: float = 0.95, far: float = 0.0
) -> Recipe:
    """OTA (arXiv:2505.12737): the value that chooses subgoals counts options of `option` steps; 1 is HIQL.

    `far` is the least distance of the goals on which `right_signs` is reported.
    """
    jump = Stage("high value", ("high_value",), critic=(goal_value("high_value", high_discount),), optimizer=STEP)
    return Recipe(
        name="ota",
        actor=Policy(head=Hierarchical()),
        critics={"value": Critic(head=GoalValue()), "high_value": Critic(head=GoalValue())},
        copies={"value_target": Copy("value", 0.02), "high_value_target": Copy("high_value", 0.02)},
        source=Relabelled(goals=Mixed(discount=discount)),
        stages=(
            Stage("value", ("value",), critic=(goal_value("value", discount),), optimizer=STEP),
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
