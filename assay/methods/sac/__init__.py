"""sac: maximum-entropy actor-critic with a temperature tuned to a target entropy.

    y = r + discount * (1 - terminal) * (min_i Q'_i(s', a') - temperature * log pi(a'|s')),  a' ~ pi
    actor: temperature * log pi(a|s) - min_i Q_i(s, a);   temperature: -log temperature * (log pi + target entropy)

Haarnoja et al. 2018b. Actions are squashed Gaussians; their log-density includes the correction for the squashing.
"""

from typing import Any

import torch

from assay import recipes
from assay.claims.claim import Exact, Measured, Method
from assay.core.spaces import Box, Spec
from assay.recipes.defaults import CONTINUOUS

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0,), (2.0,)), horizon=10)


def total_probability() -> torch.Tensor:
    """Returns the squashed density integrated over the actions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        actor: Any = recipes.sac().actor.build(SPEC).double()
    latent = torch.linspace(-12.0, 12.0, 20001, dtype=torch.float64).unsqueeze(1)
    mean, log_std = actor.parameters_of({"observation": torch.full((1, 3), 0.3, dtype=torch.float64)})
    density = actor.log_density(latent, mean, log_std).exp()
    return torch.trapezoid(density, actor.squash(latent).squeeze(1))


METHOD = Method(
    paper="arXiv:1812.05905",
    recipe=recipes.sac,
    worlds=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    departures=(
        "Adam 1e-3 instead of 3e-4",
        "8 steps alternate with 8 updates",
        "no purely random first steps: the initial policy explores",
    ),
    claims=(
        Exact("the squashed density integrates to one", total_probability, equals=1.0, tolerance=1e-4),
        Measured("swings the pendulum up: return above -300", "pendulum", recipes.sac(), -300.0, seeds=5, minutes=8),
    ),
)
