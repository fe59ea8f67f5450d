"""Rewards and data that are put in the place of the true reward on all prompts. Each is a recipe of a world."""

from __future__ import annotations

from dataclasses import replace

from assay import recipes
from assay.core.recipe import Recipe
from assay.core.slots import Reward
from assay.core.verifier import Verifier
from assay.methods.model_task_alignment.parts import Majority, OneStart
from assay.parts.aggregations import TokenMean
from assay.parts.credit.reweigh import BySign, Reweigh
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Unclipped
from assay.parts.rewards.labels import ByLabel
from assay.parts.rewards.noise import noisy
from assay.parts.rollouts.revisits import Revisits
from assay.recipes.defaults import LANGUAGE, Defaults
from assay.recipes.group import with_policy, with_token_clip

NAME = "model-task-alignment"


def rewarded(world: Defaults, name: str, *rewards: Reward) -> Recipe:
    """Returns grpo with these rewards, ratios clipped to [0.8, 1.28] and a mean over decisions."""
    return with_token_clip(replace(recipes.grpo(world), rewards=rewards), name, 0.2, 0.28)


def random(chance: float = 0.5) -> Reward:
    """Accepts an answer with probability `chance`, right or wrong."""
    return noisy({"": (chance, 1.0 - chance)}, label="")


def unclipped(world: Defaults = LANGUAGE) -> Recipe:
    """The random reward without a clip."""
    objective = PolicyGradient(trust=Unclipped(), aggregate=TokenMean())
    return with_policy(rewarded(world, NAME, random()), f"{NAME}-unclipped", objective)


def true(world: Defaults = LANGUAGE) -> Recipe:
    """The control: the task's own reward."""
    return rewarded(world, f"{NAME}-true", Verifier())


def incorrect(world: Defaults = LANGUAGE) -> Recipe:
    """Wrong answers are accepted, right ones are not."""
    return rewarded(world, f"{NAME}-incorrect", ByLabel({"": {"right": 0.0, "wrong": 1.0}}, label=""))


def majority(world: Defaults = LANGUAGE) -> Recipe:
    """The commonest answer of a group is accepted."""
    return rewarded(world, f"{NAME}-majority", Verifier(), Majority())


def one_example(world: Defaults = LANGUAGE, start: int = 0) -> Recipe:
    """The true reward on one prompt, in as many groups."""
    base = true(world)
    assert base.rollout is not None
    rollout = Revisits(base.rollout.num_starts)
    return replace(base, name=f"{NAME}-one-example", curriculum=OneStart(start), rollout=rollout)


def negatives(world: Defaults = LANGUAGE) -> Recipe:
    """The true reward; advantages above 0 are dropped after they were standardised."""
    base = true(world)
    return replace(base, name=f"{NAME}-negatives", credit=(*base.credit, Reweigh(BySign(0.0, 1.0))))
