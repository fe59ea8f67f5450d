"""Action spaces of heads: checks that a task's fits, which raise AssayError if not, and its bounds.

Bounds have one entry an action dimension.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.spaces import Box, Discrete, MultiDiscrete, Spec


def need_box(spec: Spec, who: str) -> Box:
    """Returns the task's action space as a Box."""
    if not isinstance(spec.action, Box):
        raise AssayError(f"{who} needs continuous actions, the task has {spec.action}. Try ppo, a2c or dqn")
    return spec.action


def need_bounds(spec: Spec, who: str) -> Box:
    """Returns the task's action space as a Box with finite bounds."""
    space = need_box(spec, who)
    bounds(space)
    return space


def need_discrete(spec: Spec, who: str) -> Discrete:
    """Returns the task's action space as a Discrete."""
    if not isinstance(spec.action, Discrete):
        fix = "ppo or a2c" if isinstance(spec.action, MultiDiscrete) else "sac or td3"
        raise AssayError(f"{who} needs discrete actions, the task has {spec.action}. Try {fix}")
    return spec.action


def is_finite(space: Box) -> bool:
    """Returns whether every number has finite bounds."""
    return all(map(math.isfinite, (*space.low, *space.high)))


def bounds(space: Box) -> tuple[Tensor, Tensor]:
    """Returns (centre, half range) of finite bounds; raises AssayError if a bound is infinite."""
    if not is_finite(space):
        raise AssayError(
            f"a squashed actor needs finite action bounds, got {space.low} to {space.high}. Use the head Gaussian()"
        )
    low, high = torch.tensor(space.low), torch.tensor(space.high)
    return (high + low) / 2, (high - low) / 2


def register_bounds(module: nn.Module, space: Box) -> None:
    """Registers the buffers `centre` and `half_range` of finite bounds."""
    for name, value in zip(("centre", "half_range"), bounds(space), strict=True):
        module.register_buffer(name, value)
