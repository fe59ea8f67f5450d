"""uni-o4: one clipped on-policy objective, first on states of an offline dataset, then in the task.

    clone N policies: loss_i = -log pi_i - diversity * (log pi_i - max over j != i of log pi_j);   fit Q, V, a model
    offline PPO: s of the data, a ~ old_i(.|s), A = min Q(s, a) - V(s) standardised, loss = -min(ratio A, clip(ratio) A)
    old_i <- pi_i only where the mean of Q along the learned model rose;   then PPO from the member with the best score

Lei et al. 2024. No conservative term: ratios stay near a policy that is replaced only by one with a better score.
"""

from dataclasses import replace
from itertools import permutations
from typing import Any

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.core.record import Experience
from assay.core.spaces import Box, Spec
from assay.methods.uni_o4.base import uni_o4
from assay.methods.uni_o4.gates import Rising
from assay.recipes.defaults import CONTINUOUS

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0,), (2.0,)), horizon=10)
RECIPE = uni_o4()
CLONED = replace(RECIPE, before=(replace(RECIPE.before[0], hands={"actor": "actor", "value": "value"}),))
"""Without the offline steps."""


def record() -> Experience:
    """Returns eight transitions."""
    source = torch.Generator().manual_seed(0)
    first = torch.tensor([[1.0, 0.0]]).expand(8, 2)
    seen, action = (torch.randn(8, 2, size, generator=source) for size in (3, 1))
    no = torch.zeros(8, 2, dtype=torch.bool)
    return Experience({"observation": seen}, action, first > 0, 0 * first, 0 * first, no, no)


def cloning_gradient(diversity: float) -> torch.Tensor:
    """Returns the gradient, flattened."""
    recipe: Any = RECIPE.before[0].recipe.set("diversity", diversity)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        actor = recipe.actor.build(SPEC)
    return torch.cat([g.flatten() for g in probes.gradient(recipe, record(), actor, spec=SPEC).values()])


def accepted() -> float:
    """Returns how many of five scores a gate accepts, on average over all orders."""
    gate, passed = Rising(), 0
    for order in permutations(range(5)):
        state = gate.init()
        for score in order:
            model = torch.nn.Module()
            model.standing = torch.nn.Parameter(torch.tensor([float(score)]))
            passed += int(gate({"actor": model}, state).sum())
    return passed / 120


METHOD = Method(
    paper="arXiv:2311.03351",
    recipe=uni_o4,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.ppo,
    departures=(
        "the score averages the model's members, which are deterministic, over 10 steps (one sampled, up to 1,000)",
        "the member that goes online is chosen by its score alone, not by trials in the task; V is transferred as is",
        "annealing the clip range is left out (the authors' code stops it after 200 steps); time limits bootstrap",
        "deviations do not depend on the state; rewards in tenths; 4,000 updates of critics, 100 of the policy",
    ),
    claims=(
        Exact("diversity 0.1 only makes the cloning gradient 1.1 times as large",
              lambda: (cloning_gradient(0.1) - 1.1 * cloning_gradient(0.0)).abs().max(), equals=0.0, tolerance=1e-5),
        Exact("a gate passes records: 1 + 1/2 + ... + 1/5 of five scores of one policy", accepted, equals=137 / 60),
        Measured("PPO begins better after the offline steps than after cloning alone", "pendulum", RECIPE,
                 CLONED, Average("evaluation"), seeds=5, minutes=6.0, steps=5),
    ),
)  # fmt: skip
