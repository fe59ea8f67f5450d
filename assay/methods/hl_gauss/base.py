"""Bases whose critic is a classifier over bins, made of those that regress: only critic and critic loss change.

Bins reach from -`reach` to `reach`, as in the authors' settings: a new critic, whose logits are nearly alike, then says
about 0, as one that regresses does, and not the middle of whatever range the task's values have.
"""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe, Stage
from assay.methods.hl_gauss.actor import BinnedQNetwork
from assay.methods.hl_gauss.critics import BinnedTwinQ, BinnedValue
from assay.methods.hl_gauss.fits import CrossEntropy
from assay.parts.critics.td import Td
from assay.recipes.actor_critic import ppo
from assay.recipes.off_policy import dqn, sac
from assay.recipes.worlds import CONTINUOUS, CONTROL, LANGUAGE, World


def classified(stage: Stage) -> Stage:
    """The stage with its targets fitted by cross-entropy."""
    terms = tuple(replace(term, fit=CrossEntropy()) if isinstance(term, Td) else term for term in stage.critic)
    return replace(stage, critic=terms)


def classified_dqn(reach: float = 110.0) -> Recipe:
    """Double DQN over bins; with discount 0.99 and rewards of 1 a step, CartPole's values are 0 to 100."""
    base = dqn()
    stage = classified(base.stages[0])
    return replace(base, actor=BinnedQNetwork(-reach, reach, num=101, hidden=(256, 256)), stages=(stage,))


def classified_sac(reach: float = 1800.0) -> Recipe:
    """SAC over bins; with discount 0.99 and rewards of -16 to 0 a step, the pendulum's values are -1600 to 0."""
    base = sac()
    stage = classified(base.stages[0])
    critics = {**base.critics, "q": BinnedTwinQ(-reach, reach, num=201)}
    return replace(base, critics=critics, stages=(stage, *base.stages[1:]))


def classified_ppo(world: World = LANGUAGE, reach: float = 1.5) -> Recipe:
    """PPO over bins; outcomes of 0 and 1 unless told."""
    base = ppo(world)
    stage = classified(base.stages[1])
    return replace(base, critics={"value": BinnedValue(-reach, reach)}, stages=(base.stages[0], stage))


def hl_gauss(world: World = CONTROL) -> Recipe:
    """HL-Gauss (arXiv:2403.03950) on what learns values in this world: dqn, sac or ppo."""
    base = {CONTROL.name: classified_dqn, CONTINUOUS.name: classified_sac}.get(world.name)
    return replace(classified_ppo(world) if base is None else base(), name="hl-gauss")
