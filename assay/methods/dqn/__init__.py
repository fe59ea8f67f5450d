"""dqn: temporal-difference learning of action values; one network picks the next action, another values it.

    y = r + discount * (1 - terminal) * Q_target(s', argmax_a Q(s', a)),  loss = mean (Q(s, a) - y)^2 / 2

van Hasselt et al. 2016 (double DQN). A truncated step bootstraps, a terminal one does not.
"""

import torch

from assay import recipes
from assay.claims.claim import Exact, Measured, Method
from assay.core.record import Experience
from assay.parts.targets.one_step import one_step_target
from assay.recipes.defaults import CONTROL


def target(terminal: bool, truncated: bool) -> torch.Tensor:
    """Returns y for reward 1 and next value 10."""
    flag = torch.ones(1, 1, dtype=torch.bool)
    now = Experience(
        {}, torch.zeros(1, 1), flag, torch.zeros(1, 1), torch.ones(1, 1), flag & terminal, flag & truncated
    )
    return one_step_target(now, torch.full((1, 1), 10.0), discount=0.9)


METHOD = Method(
    paper="arXiv:1509.06461",
    recipe=recipes.dqn,
    worlds=(CONTROL,),
    default_task="cartpole",
    family="value-based",
    aliases=("double-dqn",),
    departures=(
        "squared error instead of a clipped one",
        "8 environments; 32 steps alternate with 128 updates",
        "no frame stacking: observations are vectors",
    ),
    claims=(
        Exact("a terminal step's target is its reward", lambda: target(True, False), equals=1.0),
        Exact("a truncated step's target contains the next value", lambda: target(False, True), equals=10.0),
        Measured("balances the pole: return above 475", "cartpole", recipes.dqn(), 475.0, seeds=5, minutes=8),
    ),
)
