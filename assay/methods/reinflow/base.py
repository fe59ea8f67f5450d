"""The recipe of reinflow: a flow policy cloned from offline data, then improved online."""

from __future__ import annotations

from dataclasses import replace

from assay.core.optimizers import Adam
from assay.core.recipe import Phase, Recipe, Stage
from assay.methods.reinflow.models import Flow
from assay.models.model import Policy
from assay.parts.objectives.denoising import Denoising
from assay.parts.sources.logged import Log, Logged
from assay.recipes.actor_critic import ppo
from assay.recipes.defaults import CONTINUOUS, Defaults

MEDIOCRE = Logged((Log(episodes=50, noise=0.7),), batch=256, updates=10)
"""Episodes of the task's expert, most of whose actions are replaced by random ones."""


def flow_matching(world: Defaults = CONTINUOUS, actor: Policy = Policy(head=Flow())) -> Recipe:
    """A rectified flow (arXiv:2209.03003) that generates a dataset's actions: cloning, without a likelihood."""
    stage = Stage("flow", trains=("actor",), objective=(Denoising(),), optimizer=Adam(1e-3, clip_norm=0.0))
    return Recipe(name="flow", actor=actor, source=MEDIOCRE, stages=(stage,), steps=100)


def reinflow(world: Defaults = CONTINUOUS, actor: Policy = Policy(head=Flow())) -> Recipe:
    """ReinFlow (arXiv:2505.22094): a cloned flow with learned noise along its path, then unchanged ppo."""
    base = ppo(world)
    optimizer = replace(world.optimizer, learning_rate=3e-4)
    policy = replace(base.stages[0], optimizer=optimizer)
    before = Phase("flow-matching", flow_matching(world, actor), steps=100)
    return replace(base, name="reinflow", actor=actor, stages=(policy, base.stages[1]), before=(before,), steps=50)
