"""A body behind observations in units of an offline dataset's deviation. Axes: N rows, D numbers of an observation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.core.slots import Ask, Body
from assay.core.spaces import Context, Spec
from assay.models.bodies.perceptron import Perceptron

EPSILON = 1e-3


class ByDataInputs(nn.Module):
    """Passes (observation - mean) / (deviation + 1e-3) to another network; goals stay as they are."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inner: nn.Module, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("scale", torch.tensor(deviation) + EPSILON)

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns the outputs of the inner network."""
        seen = {**context, "observation": (context["observation"] - self.mean) / self.scale}
        outputs: Tensor = self.inner(seen) if action is None else self.inner(seen, action, num)
        return outputs


@dataclass(frozen=True)
class StandardisedByData(Body):
    """A body on states with the data's mean 0 and deviation 1 (arXiv:2106.06860), in training and when acting alike.

    `mean` and `deviation` are those of all observations of the dataset; a plan fills them in (`of_data`), and without
    them states stay as they are. Degenerate: a constant number is divided by 1e-3.
    """

    body: Body = Perceptron((256, 256))
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    scale_free: ClassVar[bool] = True

    def needs_data(self, spec: Spec) -> bool:
        """Returns whether the moments are missing."""
        return not self.mean

    def of_data(self, observation: Tensor, achieved: Tensor | None) -> StandardisedByData:
        """Returns the body with the moments of these states, [N, D]."""
        deviation, mean = torch.std_mean(observation.double(), 0, correction=0)
        return replace(self, mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist()))

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns the inner body's network on standardised states."""
        inner = self.body.outputs(spec, ask)
        return ByDataInputs(inner, self.mean, self.deviation) if self.mean else inner
