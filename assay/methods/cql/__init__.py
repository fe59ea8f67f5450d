"""cql: action values that are low where nothing was recorded, so that no policy is drawn there.

    critic loss = weight * (log sum over a of exp Q(s, a) - Q(s, a_recorded)) + (Q - y)^2 / 2

Kumar et al. 2020, CQL(H). For torques the sum is an integral, estimated from the policy's and uniform proposals, on top
of SAC; for choices it is exact, on top of double DQN.
"""

from typing import Any

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.spaces import Box, Discrete, Spec
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import Greedy
from assay.models.model import Policy
from assay.parts.sources.logged import Log
from assay.recipes.conservative import cql
from assay.recipes.defaults import CONTINUOUS, CONTROL, Defaults

SPEC = Spec(Box((-1.0,), (1.0,)), Discrete(3), horizon=1)
DATA, Q, WEIGHT = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.5, -0.2, 1.0]), 0.4
NARROW = Log(20, noise=0.1)


def gradient_at(target_A: torch.Tensor) -> torch.Tensor:
    """The gradient in Q of a one-step problem: ten transitions, actions as often as in DATA, rewards `target`."""
    recipe: Any = cql(CONTROL, weight=WEIGHT)
    actor: Any = Policy(Perceptron(()), Greedy()).build(SPEC)
    with torch.no_grad():
        actor.body.net[0].weight.copy_(Q.unsqueeze(1))
        actor.body.net[0].bias.zero_()
    action = torch.repeat_interleave(torch.arange(3), (10 * DATA).round().long())
    columns = [torch.stack((x, torch.zeros_like(x)), 1) for x in (action, torch.ones(10).bool(), target_A[action])]
    none = torch.zeros(10, 2)
    seen = {"observation": torch.ones(10, 2, 1)}
    record = Experience(seen, columns[0], columns[1], none, columns[2], columns[1], none.bool())
    return probes.gradient(recipe, record, actor, models={"target": actor})["body.net.0.weight"]


def rest() -> torch.Tensor:
    """The largest gradient where Q is below its targets by weight * (softmax(Q) / data - 1)."""
    return gradient_at(Q + WEIGHT * (Q.softmax(0) / DATA - 1.0)).abs().max()


def lowered() -> torch.Tensor:
    """There the policy softmax(Q) is worth less than it gets, by weight times its chi-square distance from the data."""
    policy = Q.softmax(0)
    return (policy * WEIGHT * (policy / DATA - 1.0)).sum() - WEIGHT * ((policy - DATA).square() / DATA).sum()


def without_penalty(world: Defaults = CONTROL) -> Recipe:
    """What the penalty is added to: double DQN for discrete actions, SAC for continuous ones."""
    return recipes.dqn(world) if world.discrete else recipes.sac(world)


METHOD = Method(
    paper="arXiv:2006.04779",
    recipe=cql,
    worlds=(CONTROL, CONTINUOUS),
    default_task="cartpole",
    family="offline",
    base=without_penalty,
    departures=(
        "the weight is fixed at 1, no Lagrange multiplier",
        "the log of the mean over proposals, not of their sum: a constant",
        "networks of 64, batches of 128, Adam 1e-3 for all (256 three times, 256, 1e-4 and 3e-4)",
        "data are made of scripted experts under noise, not D4RL or Atari",
    ),
    claims=(
        Exact("at rest values lie below their targets by weight * (policy / data - 1)", rest, equals=0.0),
        Exact("hence a policy's value by weight * chi-square(policy, data), never above", lowered, equals=0.0),
        Measured("on an expert's log it works where double DQN does not", "cartpole", cql(CONTROL, NARROW),
                 cql(CONTROL, NARROW, weight=0.0), seeds=5, minutes=2.0, steps=150),
    ),
)  # fmt: skip
