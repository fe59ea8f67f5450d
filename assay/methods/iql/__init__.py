"""iql: an implicit maximum over recorded actions by expectile regression, then weighted cloning.

    V loss = |level - 1(u < 0)| u^2,  u = min_i Q'_i(s, a) - V(s);   Q loss = (r + discount V(s') - Q(s, a))^2 / 2
    actor loss = -min(exp(sharpness (min_i Q'_i - V)), 100) log pi(a|s)

Kostrikov et al. 2022. No action that is not in the record is ever evaluated; level 1/2 is the value of whoever acted.
"""

from typing import Any

import torch

from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.record import Experience
from assay.core.spaces import Discrete, Spec
from assay.parts.sources.logged import Log
from assay.recipes.conservative import iql
from assay.recipes.defaults import CONTINUOUS, CONTROL, TABLE

SPEC = Spec(Discrete(2), Discrete(3), horizon=2)
RANDOM = Log(50, noise=1.0)


def slope(level: float, value: float) -> torch.Tensor:
    """d V loss / d V(s) where three recorded actions have values 0, 1 and 2."""
    recipe: Any = iql(TABLE, level=level)
    q, v = recipe.critics["q"].build(SPEC), recipe.critics["value"].build(SPEC)
    with torch.no_grad():
        q.body.table[0] = torch.tensor([0.0, 1.0, 2.0]).unsqueeze(1)
        v.body.table[0] = value
    state, action = torch.tensor([[0, 1]]).expand(3, 2), torch.tensor([[0, 0], [1, 0], [2, 0]])
    first, no = torch.tensor([[1.0, 0.0]]).expand(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    record = Experience({"state": state}, action, first > 0, 0 * first, 0 * first, no, no)
    engine = probes.witness(recipe, recipe.actor.build(SPEC), {"q": q, "q_target": q, "value": v}, spec=SPEC)
    return engine.gradient(recipe.stages[0], engine.annotate(record, recipe.needs))["value.body.table"][0]


METHOD = Method(
    paper="arXiv:2110.06169",
    recipe=iql,
    worlds=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="offline",
    departures=(
        "the Gaussian's mean is not squashed", "networks of 64, batches of 128, Adam 1e-3 (256, 256, 3e-4), no decay",
        "data are made of scripted experts under noise, not D4RL",
    ),
    claims=(
        Exact("level 1/2 is the mean", lambda: slope(0.5, 1.0), equals=0.0),
        # 0.9 (2 - v) = 0.1 (v + v - 1)
        Exact("level 0.9 of 0, 1, 2 is 19 / 11", lambda: slope(0.9, 19 / 11), equals=0.0),
        Exact("level 1 is the maximum: no pull there", lambda: slope(1.0, 2.0), equals=0.0),
        Measured("from random walks it finds the way, cloning does not", "gridworld", iql(TABLE, RANDOM),
                 iql(TABLE, RANDOM, sharpness=0.0), seeds=5, minutes=1.0, steps=120),
    ),
)  # fmt: skip
