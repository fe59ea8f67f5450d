"""How well a critic tracks moving targets, such as values while a policy improves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.core.slots import ModelSpec
from assay.core.spaces import Box, Context, Spec

NUM_INPUTS, SIZE, BATCH, PHASES, STEPS = 512, 16, 64, 5, 300
OFFSET, RATE = 8.0, 3e-3
SPEC = Spec(Box((-9.0,) * SIZE, (9.0,) * SIZE), Box((-1.0,), (1.0,)), horizon=1)


def tracking_error(
    critic: ModelSpec, loss: Callable[[Any, Context, Tensor], Tensor], seed: int, noise: float = 0.0
) -> float:
    """Returns the mean squared error to the clean target, at the ends of phases 2 to 5, of a critic V trained by
    Adam.

        target = sin(18 f(x)) + 8 * phase + noise * normal,   f a fixed random network; clean ones lie in [-1, 33]

    `loss(model, context, target)` returns each row's loss. Takes a few seconds.
    """
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(NUM_INPUTS, SIZE, generator=source)
    inner = torch.randn(SIZE, 2 * SIZE, generator=source) / SIZE**0.5
    outer = torch.randn(2 * SIZE, generator=source) / (2 * SIZE) ** 0.5
    clean = (18.0 * (inputs @ inner).tanh() @ outer).sin()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = critic.build(SPEC)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    errors = []
    for phase in range(PHASES):
        for _ in range(STEPS):
            rows = torch.randint(NUM_INPUTS, (BATCH,), generator=source)
            target = clean[rows] + OFFSET * phase + noise * torch.randn(BATCH, generator=source)
            optimizer.zero_grad()
            loss(model, {"observation": inputs[rows]}, target).mean().backward()
            optimizer.step()
        with torch.no_grad():
            errors.append(float((model({"observation": inputs}) - clean - OFFSET * phase).square().mean()))
    return sum(errors[1:]) / (PHASES - 1)
