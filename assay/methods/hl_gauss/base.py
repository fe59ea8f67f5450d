"""Base recipes with a classifying critic, made from those that regress: only critic and critic loss change.

Bins reach from -`reach` to `reach`, as in the authors' settings: a new critic, whose logits are nearly equal, then
predicts about 0, as a regressing one does, and not the middle of the task's value range.
"""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe, Stage
from assay.methods.hl_gauss.fits import CrossEntropy
from assay.models.heads.bins import Bins
from assay.models.heads.value import ActionValue, Greedy, Value
from assay.models.model import Critic, Policy
from assay.parts.critics.td import Td
from assay.recipes.actor_critic import ppo
from assay.recipes.defaults import CONTINUOUS, CONTROL, LANGUAGE, Defaults
from assay.recipes.off_policy import dqn, sac


def classified(stage: Stage) -> Stage:
    """Returns the stage with its targets fitted by cross-entropy."""
    terms = tuple(replace(term, fit=CrossEntropy()) if isinstance(term, Td) else term for term in stage.critic)
    return replace(stage, critic=terms)


def classified_dqn(world: Defaults = CONTROL, reach: float = 110.0) -> Recipe:
    """Double DQN over bins; with discount 0.99 and rewards of 1 per step, CartPole's values are 0 to 100."""
    base = dqn(world)
    stage = classified(base.stages[0])
    return replace(base, actor=Policy(world.off_policy.body, Greedy(Bins(-reach, reach, 101))), stages=(stage,))


def classified_sac(world: Defaults = CONTINUOUS, reach: float = 1800.0) -> Recipe:
    """SAC over bins; with discount 0.99 and rewards of -16 to 0 per step, the pendulum's values are -1600 to 0."""
    base = sac(world)
    stage = classified(base.stages[0])
    critics = {**base.critics, "q": Critic(world.off_policy.body, ActionValue(bins=Bins(-reach, reach, 201)))}
    return replace(base, critics=critics, stages=(stage, *base.stages[1:]))


def classified_ppo(world: Defaults = LANGUAGE, reach: float = 1.5, num: int = 51) -> Recipe:
    """PPO over bins; by default for outcomes of 0 and 1."""
    base = ppo(world)
    stage = classified(base.stages[1])
    critic = replace(world.value, head=Value(Bins(-reach, reach, num)))
    return replace(base, critics={"value": critic}, stages=(base.stages[0], stage))


def hl_gauss(world: Defaults = CONTROL, reach: float | None = None) -> Recipe:
    """HL-Gauss (arXiv:2403.03950) on the value-based recipe of this world: dqn, sac or ppo.

    `reach` is the largest |value|; by default that of outcomes (1.5) for tokens, of the pendulum (1800) for continuous
    actions, and of rewards within +-1 and discount 0.99 (110) otherwise. The guard `inside bins` tells if it is wrong.
    """
    if world.tokens:
        made = classified_ppo(world, reach or 1.5)
    elif world.tabular:
        made = classified_ppo(world, reach or 110.0, 101)
    else:
        made = classified_dqn(world, reach or 110.0) if world.discrete else classified_sac(world, reach or 1800.0)
    return replace(made, name="hl-gauss")
