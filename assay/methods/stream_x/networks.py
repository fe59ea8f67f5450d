"""Networks that learn from one sample at a time: sparse weights, normalised layers, running scales of inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

SPARSITY = 0.9


def sparse_perceptron(num_inputs: int, num_outputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Linear, layer norm without learned scale, leaky ReLU; a linear head. Sparse weights, zero biases
    (arXiv:2410.14606).
    """
    sizes = [num_inputs, *hidden]
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        layers += [sparse(nn.Linear(fan_in, fan_out)), nn.LayerNorm(fan_out, elementwise_affine=False), nn.LeakyReLU()]
    return nn.Sequential(*layers, sparse(nn.Linear(sizes[-1], num_outputs)))


@torch.no_grad()
def sparse(layer: nn.Linear) -> nn.Linear:
    """Each unit reads a tenth of its inputs, at least one, with weights uniform in +-1/sqrt(inputs); biases are 0."""
    num_outputs, num_inputs = layer.weight.shape
    kept = max(1, num_inputs - math.ceil(SPARSITY * num_inputs))
    bound = num_inputs**-0.5
    order = torch.rand(num_outputs, num_inputs).argsort(1)
    layer.weight.uniform_(-bound, bound).mul_(order < kept)
    layer.bias.zero_()
    return layer


class RunningScale(nn.Module):
    """(x - mean) / sqrt(variance + 1e-8) with moments that are parameters of their own loss and take no other gradient.

    Before the first sample mean is 0 and the variance 1.
    """

    def __init__(self, num_inputs: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(num_inputs))
        self.square = nn.Parameter(torch.ones(num_inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs in units of their spread."""
        mean = self.mean.detach()
        variance = (self.square.detach() - mean.square()).clamp(min=0.0)
        return (inputs - mean) / (variance + 1e-8).sqrt()
