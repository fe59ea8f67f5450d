"""A body behind observations in units of their running deviation. Axes: F numbers of an observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.core.record import State
from assay.core.slots import Ask, Body
from assay.core.spaces import Context, Spec
from assay.models.bodies.perceptron import Perceptron, Vectors, feature_size, features

LIMIT = 10.0
"""Standardised numbers are clipped to +- this."""


class Moments(nn.Module):
    """(x - mean) / deviation, clipped to +-10. Both are saved with the run; a rollout sets them, nothing else does.

    Before they are set, the mean is 0 and the deviation 1.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))

    def forward(self, rows: Tensor) -> Tensor:
        """Returns the numbers in units of their deviation."""
        return ((rows - self.mean) / self.deviation).clamp(-LIMIT, LIMIT)

    def kept(self) -> State:
        """Returns mean and deviation."""
        return {"mean": self.mean.clone(), "deviation": self.deviation.clone()}

    def keep(self, state: State) -> None:
        """Sets mean and deviation."""
        self.mean.copy_(state["mean"])
        self.deviation.copy_(state["deviation"])


class StandardisedInputs(nn.Module):
    """Passes standardised observations to another body."""

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__()
        self.inner, self.moments = inner, Moments(size)

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns the outputs of the inner body."""
        outputs: Tensor = self.inner({"observation": self.moments(features(context))}, action, num)
        return outputs


@dataclass(frozen=True)
class Standardised(Body):
    """A body on (x - mean) / deviation of the observations, goal included, clipped to +-10.

    The rollout `Standardising` measures and sets the moments; they are fixed during a step and in evaluation.
    """

    body: Vectors = Perceptron()
    scale_free: ClassVar[bool] = True

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        return StandardisedInputs(self.body.outputs(spec, ask), feature_size(spec))
