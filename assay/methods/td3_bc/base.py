"""The recipe of td3-bc."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe
from assay.methods.td3_bc.models import Standardised
from assay.methods.td3_bc.objectives import MaximizeScaledQ
from assay.methods.td3_bc.regularizers import NearRecorded
from assay.models.heads.bounded import Deterministic
from assay.models.heads.value import ActionValue
from assay.models.model import Critic, Policy
from assay.parts.sources.logged import Log
from assay.recipes.conservative import logged
from assay.recipes.defaults import CONTINUOUS, Defaults
from assay.recipes.off_policy import td3


def td3_bc(world: Defaults = CONTINUOUS, log: Log | None = None, weight: float = 2.5) -> Recipe:
    """TD3+BC (arXiv:2106.06860): TD3 on an offline dataset, its actor regularised towards the recorded actions."""
    base, settings, source = td3(world), world.offline, logged(world, log)
    body = Standardised(settings.body) if settings.standardised else settings.body
    critic, actor = (replace(stage, optimizer=settings.optimizer) for stage in base.stages)
    actor = replace(actor, objective=(MaximizeScaledQ(weight),), regularizers=(NearRecorded(),))
    critics = {"q": Critic(body, ActionValue())}
    base = replace(base, actor=Policy(body, Deterministic()), critics=critics)
    return replace(base, name="td3-bc", rollout=None, source=source, stages=(critic, actor), steps=settings.steps)
