"""Policies that generate actions, built and asked in tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.spaces import Box, Spec

TWO = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0, 0.0), (2.0, 1.0)), horizon=5)


def built(spec: Any, task: Spec = TWO) -> Any:
    torch.manual_seed(3)
    return spec.build(task).double()


def seen(num: int, seed: int = 1) -> dict[str, Tensor]:
    return {"observation": torch.randn(num, 3, generator=torch.Generator().manual_seed(seed)).double()}


def uniform(num: int, draws: int) -> Tensor:
    return torch.rand(num, draws, generator=torch.Generator().manual_seed(2)).double().clamp(1e-6, 1 - 1e-6)


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
