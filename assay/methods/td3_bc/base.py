"""The recipe of td3-bc."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe
from assay.methods.td3_bc.objectives import MaximizeScaledQ
from assay.methods.td3_bc.regularizers import NearRecorded
from assay.models.bounded import Deterministic
from assay.parts.critics.q import TwinQ
from assay.parts.sources.logged import Log, Logged
from assay.recipes.conservative import LOG, STEP
from assay.recipes.off_policy import td3
from assay.recipes.worlds import CONTINUOUS, World


def td3_bc(world: World = CONTINUOUS, log: Log = LOG, weight: float = 2.5) -> Recipe:
    """TD3+BC (arXiv:2106.06860): TD3 on a log, its actor held to the recorded actions."""
    base, source = td3(world), Logged((log,), batch=128)
    critic, actor = (replace(stage, optimizer=STEP) for stage in base.stages)
    actor = replace(actor, objective=(MaximizeScaledQ(weight),), regularizers=(NearRecorded(),))
    base = replace(base, actor=Deterministic((64, 64)), critics={"q": TwinQ((64, 64))})
    return replace(base, name="td3-bc", rollout=None, source=source, stages=(critic, actor), steps=200)
