"""td3-bc: TD3 on a fixed log, its actor held to the recorded actions by one squared term.

    actor loss = -weight * Q_1(s, mu(s)) / mean |Q_1(s, a)| + mean over dimensions of (mu(s) - a)^2,   weight = 2.5

Fujimoto and Gu 2021. Everything else is TD3. Without the square the actor goes where the critic extrapolates.
"""

from typing import Any

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Measured, Method
from assay.core.record import Experience
from assay.core.spaces import Box, Spec
from assay.methods.td3_bc.base import td3_bc
from assay.parts.sources.logged import Log
from assay.recipes.defaults import CONTINUOUS

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0,) * 2, (2.0,) * 2), horizon=10)
EXPERT = Log(20, noise=0.1, reward_scale=0.1)


def transitions() -> Experience:
    """Eight random ones."""
    source = torch.Generator().manual_seed(0)
    first = torch.tensor([[1.0, 0.0]]).expand(8, 2)
    seen, action = (torch.randn(8, 2, size, generator=source) for size in (3, 2))
    no = torch.zeros(8, 2, dtype=torch.bool)
    return Experience({"observation": seen}, action.clamp(-2, 2), first > 0, 0 * first, 0 * first, no, no)


def actor_gradient(weight: float = 2.5, scale: float = 1.0) -> torch.Tensor:
    """The actor's gradient, all parameters in a row, with a critic multiplied by `scale`."""
    recipe: Any = td3_bc(weight=weight)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        q, actor = recipe.critics["q"].build(SPEC), recipe.actor.build(SPEC)
    with torch.no_grad():
        q.body.net.weights[-1].mul_(scale)
        q.body.net.biases[-1].mul_(scale)
    return torch.cat([g.flatten() for g in probes.gradient(recipe, transitions(), actor, models={"q": q}).values()])


def distance_from_cloning() -> torch.Tensor:
    """Without the critic it is cloning, whose loss has half the sum over two dimensions: just their mean."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        td3_bc().critics["q"].build(SPEC)
        actor = td3_bc().actor.build(SPEC)
    cloning = torch.cat([g.flatten() for g in probes.gradient(recipes.bc(), transitions(), actor).values()])
    return (actor_gradient(weight=0.0) - cloning).abs().max()


METHOD = Method(
    paper="arXiv:2106.06860",
    recipe=td3_bc,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="offline",
    base=recipes.td3,
    departures=(
        "mean |Q| is at recorded actions, as in the paper, before the critic's step; its code: at the actor's own",
        "observations are not standardised", "networks of 64, batches of 128, Adam 1e-3 (256, 256, 3e-4)",
        "data are made of scripted experts under noise, not D4RL",
    ),
    claims=(
        Exact("a critic ten times as large has the same actor gradient",
              lambda: (actor_gradient() - actor_gradient(scale=10.0)).abs().max(), equals=0.0, tolerance=1e-6),
        Exact("weight 0 is behaviour cloning", distance_from_cloning, equals=0.0),
        Measured("on an expert's log it works where TD3 does not", "pendulum", td3_bc(log=EXPERT),
                 td3_bc(log=EXPERT).set("NearRecorded.coefficient", 0.0), seeds=5, minutes=4, steps=150),
    ),
)  # fmt: skip
