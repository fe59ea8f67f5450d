"""Any on-policy recipe with trees in place of networks."""

from dataclasses import replace

from assay.method import CONTROL, Adam, Preset, Recipe, Stage, ppo
from assay.methods.gbrl.models import Trees
from assay.methods.gbrl.optimizer import Boost, Oblivious, SquaredError
from assay.models import Critic, Policy
from assay.parts import FreshDecisions


def boosted(base: Recipe, boost: Boost, codes: tuple[int, ...] = ()) -> Recipe:
    """Returns the recipe's losses, in one stage, on a policy and a value made of trees."""
    first = base.stages[0]
    stage = Stage(
        first.name,
        trains=("actor", *base.critics),
        objective=tuple(term for stage in base.stages for term in stage.objective),
        regularizers=tuple(term for stage in base.stages for term in stage.regularizers),
        critic=tuple(term for stage in base.stages for term in stage.critic),
        optimizer=boost,
    )
    critics = {name: Critic(Trees(codes)) for name in base.critics}
    return replace(base, actor=Policy(Trees(codes)), critics=critics, stages=(stage,))


BOOST = Boost(0.2, rates={"value": 0.5}, tree=Oblivious(score=SquaredError()), inner=Adam(3e-3, clip_norm=0.0))


def gbrl(preset: Preset = CONTROL, codes: tuple[int, ...] = ()) -> Recipe:
    """GBRL (arXiv:2407.08250): PPO with policy and value trees of one structure and separate step sizes.

    Every update adds a tree that all later decisions evaluate, so a batch is used for twelve updates only.
    """
    return replace(boosted(ppo(preset), BOOST, codes), name="gbrl", source=FreshDecisions(epochs=3, minibatches=4))
