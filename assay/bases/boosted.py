"""Any on-policy recipe with trees in place of networks."""

from __future__ import annotations

from dataclasses import replace

from assay.actors.trees import Trees
from assay.bases.actor_critic import ppo
from assay.boosting import Boost
from assay.critics.trees import TreeValue
from assay.recipe import Recipe, Stage
from assay.worlds import CONTROL, World


def boosted(base: Recipe, boost: Boost, codes: tuple[int, ...] = ()) -> Recipe:
    """The recipe's losses, in one stage, on a policy and a value of trees."""
    first = base.stages[0]
    stage = Stage(
        first.name,
        trains=("actor", *base.critics),
        objective=tuple(term for stage in base.stages for term in stage.objective),
        regularizers=tuple(term for stage in base.stages for term in stage.regularizers),
        critic=tuple(term for stage in base.stages for term in stage.critic),
        optimizer=boost,
    )
    critics = {name: TreeValue(codes) for name in base.critics}
    return replace(base, actor=Trees(codes), critics=critics, stages=(stage,))


def gbrl(world: World = CONTROL, codes: tuple[int, ...] = (), boost: Boost = Boost(rates={"value": 1.0})) -> Recipe:
    """GBRL (arXiv:2407.08250): PPO whose policy and value are trees of one structure with step sizes of their own."""
    return replace(boosted(ppo(world), boost, codes), name="gbrl")
