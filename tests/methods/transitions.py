"""Transitions of a small continuous task, and models built for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.claims import probes
from assay.core.record import Experience
from assay.core.spaces import Box, Spec

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0,) * 2, (2.0,) * 2), horizon=10)
ROWS = 12


def transitions(rows: int = ROWS) -> Experience:
    """Random transitions; one of four ends."""
    draw = torch.Generator().manual_seed(3)
    seen, action = torch.randn(rows, 2, 3, generator=draw), 4 * torch.rand(rows, 2, 2, generator=draw) - 2
    first = torch.tensor([[True, False]]).expand(rows, 2)
    reward = torch.randn(rows, 2, generator=draw) * first
    ends = (torch.arange(rows) % 4 == 0).unsqueeze(1) & first
    return Experience({"observation": seen}, action, first, 0 * reward, reward, ends, torch.zeros_like(ends))


def built(recipe: Any) -> dict[str, Any]:
    """The recipe's models with weights of one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return {name: spec.build(SPEC) for name, spec in {"actor": recipe.actor, **recipe.critics}.items()}


def gradient(recipe: Any, stage: str, batch: Experience) -> dict[str, Tensor]:
    models = built(recipe)
    engine = probes.witness(recipe, models.pop("actor"), models)
    return engine.gradient(
        next(one for one in recipe.stages if one.name == stage), engine.annotate(batch, recipe.needs)
    )
