"""Expectations over the paths of a small path actor by Gauss-Hermite quadrature. Axes: R nodes, A actions, D numbers.

A path of K steps is a smooth function of D = (K + 1) A independent normal variables; for few of them a grid of nodes
integrates it to rounding error, without sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.probes.gradients import gradient
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.spaces import Box, Spec

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-1.0,), (1.0,)), horizon=1)
SEEN = (0.3, -0.8, 0.5)


def small_actor(recipe: Recipe, seed: int = 0) -> Any:
    """Returns the recipe's actor for three observed numbers and one action dimension, float64, off its initial
    weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = recipe.actor.build(SPEC).double()
        with torch.no_grad():
            for parameter in actor.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64) / parameter.shape[-1] ** 0.5)
    return actor


def nodes(num_dims: int, num: int) -> tuple[Tensor, Tensor]:
    """Returns normal numbers [num ** num_dims, num_dims] and the probability weight of each."""
    place, weight = (torch.from_numpy(values) for values in np.polynomial.hermite_e.hermegauss(num))
    grid = torch.cartesian_prod(*[place] * num_dims).view(-1, num_dims)
    return grid, torch.cartesian_prod(*[weight / weight.sum()] * num_dims).view(-1, num_dims).prod(-1)


def walked_record(actor: Any, normal: Tensor) -> tuple[Experience, Tensor]:
    """Returns (one recorded decision for each row of normal numbers, the same paths with gradient)."""
    num = len(normal)
    context = {"observation": torch.tensor(SEEN, dtype=torch.float64).expand(num, 3)}
    action, logp, path = actor.walk(context, torch.special.ndtr(normal))
    one = torch.ones(num, 1, dtype=torch.bool)
    record = Experience(
        context={"observation": context["observation"].unsqueeze(1)},
        action=action.detach().unsqueeze(1),
        mask=one,
        logp=logp.detach().unsqueeze(1),
        reward=torch.zeros(num, 1, dtype=torch.float64),
        terminal=one,
        truncated=~one,
        extra={"path": path.detach().unsqueeze(1)},
    )
    return record, path


def path_gradient_error(recipe: Recipe, payoff: Callable[[Tensor], Tensor], num: int = 24) -> Tensor:
    """Returns the largest difference, relative to the largest entry, between the recipe's expected ascent and the
    gradient of the expected payoff of the path's end [R, A] -> [R], over all parameters of the actor.
    """
    actor = small_actor(recipe)
    normal, weight = nodes(actor.num_draws, num)
    record, path = walked_record(actor, normal)
    worth = payoff(path[:, -1])
    exact = torch.autograd.grad((weight * worth).sum(), list(actor.parameters()))
    # The mean over rows with these advantages is the expectation over paths.
    record = record.add({"advantage": (len(normal) * weight * worth.detach()).unsqueeze(1)})
    stages = tuple(replace(stage, regularizers=()) for stage in recipe.stages)
    found = gradient(replace(recipe, stages=stages), record.add({"value": record.reward}), actor, spec=SPEC)
    size = max(float(one.abs().max()) for one in exact)
    gaps = [(found[name] + one).abs().max() for (name, _), one in zip(actor.named_parameters(), exact, strict=True)]
    return torch.stack(gaps).max() / size
