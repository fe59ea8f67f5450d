"""Networks for learning from one sample at a time: sparse weights, normalised layers, running input scales.

Axes: B, T, F features, O outputs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.method import Ask, AssayError, Body, Context, Spec
from assay.models import Perceptron, Vectors, feature_size, features, layered

SPARSITY = 0.9


def sparse_perceptron(num_inputs: int, num_outputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Linear, layer norm without learned scale, leaky ReLU; a linear head. Sparse weights, zero biases
    (arXiv:2410.14606).
    """
    return layered(
        num_inputs,
        num_outputs,
        hidden,
        sparse,
        lambda width: (nn.LayerNorm(width, elementwise_affine=False), nn.LeakyReLU()),
    )


@torch.no_grad()
def sparse(layer: nn.Linear, gain: float) -> nn.Linear:
    """Connects each unit to a tenth of its inputs, at least one: weights uniform in +-1/sqrt(inputs), zero biases."""
    num_outputs, num_inputs = layer.weight.shape
    kept = max(1, num_inputs - math.ceil(SPARSITY * num_inputs))
    bound = num_inputs**-0.5
    order = torch.rand(num_outputs, num_inputs).argsort(1)
    layer.weight.uniform_(-bound, bound).mul_(order < kept)
    layer.bias.zero_()
    return layer


class RunningScale(nn.Module):
    """(x - mean) / sqrt(variance * n / (n - 1) + 1e-8) with the mean and variance of the n samples so far.

    They are parameters of their own loss and get no other gradient. The variance is centred (Welford's), since
    E[x^2] - E[x]^2 in float32 is 0 for a deviation of 1 around 1,000. Before the second sample the variance counts
    as 1, before the first the mean is 0.
    """

    def __init__(self, num_inputs: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(num_inputs))
        self.variance = nn.Parameter(torch.zeros(num_inputs))
        self.number = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the inputs in units of their deviation."""
        mean, number = self.mean.detach(), self.number.detach()
        unbiased = self.variance.detach() * number / (number - 1.0)
        return (inputs - mean) / (torch.where(number > 1.5, unbiased, 1.0) + 1e-8).sqrt()


@dataclass(frozen=True)
class Sparse(Vectors):
    """A sparse perceptron with layer norm (arXiv:2410.14606); the head's gain is not used."""

    hidden: tuple[int, ...] = (32, 32)

    def network(self, num_inputs: int, ask: Ask) -> nn.Module:
        """Returns the network; raises AssayError if members are requested."""
        if ask.members:
            raise AssayError("Sparse() is a single network; this head needs an ensemble. Use Perceptron()")
        # Verdicts were measured with weights drawn after those of a plain perceptron: its draws are made and dropped.
        Perceptron(self.hidden).network(num_inputs, ask)
        return sparse_perceptron(num_inputs, ask.num, self.hidden)


class ScaledInputs(nn.Module):
    """Passes the observation, in units of its running deviation, to another body."""

    def __init__(self, inner: nn.Module, num_inputs: int) -> None:
        super().__init__()
        self.inner, self.scale = inner, RunningScale(num_inputs)

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns the outputs of the inner body."""
        outputs: Tensor = self.inner({"observation": self.scale(features(context))}, action, num)
        return outputs


@dataclass(frozen=True)
class Scaled(Body):
    """A body behind (x - mean) / deviation of the observations so far; `FitMoments` updates the moments."""

    body: Vectors = Sparse()
    scale_free: ClassVar[bool] = True

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns the inner body on scaled observations."""
        return ScaledInputs(self.body.outputs(spec, ask), feature_size(spec))
