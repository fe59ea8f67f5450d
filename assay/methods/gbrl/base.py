"""Any on-policy recipe with trees in place of networks."""

from dataclasses import dataclass, replace
from typing import ClassVar

from assay.method import CONTROL, Adam, Aggregation, Experience, Loss, Need, Objective, Preset, Recipe, Stage, View, ppo
from assay.methods.gbrl.models import Trees
from assay.methods.gbrl.optimizer import Boost, Oblivious, Shape, SquaredError
from assay.models import Critic, Policy
from assay.parts import FreshDecisions, TokenMean, Weighed, exponential_weight


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


def advantage_weighted(preset: Preset) -> Recipe:
    """AWR (arXiv:1910.00177): the policy by likelihood, weighed by exp(advantage); the value as ppo's."""
    base = ppo(preset)
    policy = replace(base.stages[0], objective=(AdvantageWeighted(),), regularizers=())
    return replace(base, name="awr", stages=(policy, *base.stages[1:]))


@dataclass(frozen=True)
class AdvantageWeighted(Weighed, Objective):
    """loss = -sum_bt min(exp(A_bt / temperature), limit) * log pi(a_bt | s_bt) / count (AWR, arXiv:1910.00177).

    A is the column `advantage`, which has no gradient. Degenerate: a large temperature is behaviour cloning.
    """

    temperature: float = 1.0
    limit: float = 20.0
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "a decision of advantage 0 has weight 1"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        weight = exponential_weight(batch.column("advantage").detach(), 1.0 / self.temperature, self.limit)
        return Loss(-(weight * view.scored.logp * self.aggregate.weigh(batch)).sum(), self.count(batch), {})


BOOST = Boost(0.2, rates={"value": 0.5}, tree=Oblivious(score=SquaredError()), inner=Adam(3e-3, clip_norm=0.0))


def gbrl(preset: Preset = CONTROL, codes: tuple[int, ...] = ()) -> Recipe:
    """GBRL (arXiv:2407.08250): PPO with policy and value trees of one structure and separate step sizes.

    Every update adds a tree that all later decisions evaluate, so a batch is used for twelve updates only.
    """
    return on_trees(ppo(preset), codes)


def on_trees(base: Recipe, codes: tuple[int, ...] = (), tree: Shape | None = None) -> Recipe:
    """Returns the recipe boosted, with twelve updates a batch; `tree` in place of oblivious ones."""
    boost = BOOST if tree is None else replace(BOOST, tree=tree)
    return replace(boosted(base, boost, codes), name="gbrl", source=FreshDecisions(epochs=3, minibatches=4))
