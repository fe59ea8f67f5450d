"""Residual networks on vectors with layer norm (SimBa, arXiv:2410.09754). Axes: N members, R rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask
from assay.models.bodies.perceptron import Vectors


class ResidualNetworks(nn.Module):
    """N networks side by side: x <- linear; x <- x + linear(relu(linear(norm(x)))) for each block; linear(norm(x))."""

    def __init__(self, num: int, sizes: tuple[int, int, int], blocks: int, gain: float) -> None:
        super().__init__()
        num_inputs, width, num_outputs = sizes
        shapes = [(num_inputs, width, 1.0), *[(width, 4 * width, 2.0**0.5), (4 * width, width, 2.0**0.5)] * blocks]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out, scale in (*shapes, (width, num_outputs, gain)):
            weight = torch.empty(num, fan_in, fan_out)
            for member in weight:
                nn.init.orthogonal_(member, scale)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(num, 1, fan_out)))
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(num, 1, width)) for _ in range(blocks + 1))
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(num, 1, width)) for _ in range(blocks + 1))

    def layer(self, place: int, rows: Tensor, num: int | None) -> Tensor:
        """Returns a linear layer of rows [N, R, in]."""
        return torch.baddbmm(self.biases[place][:num], rows, self.weights[place][:num])

    def normed(self, place: int, rows: Tensor, num: int | None) -> Tensor:
        """Returns the rows after layer norm, with scale and shift."""
        inner = nn.functional.layer_norm(rows, rows.shape[-1:])
        return torch.addcmul(self.shifts[place][:num], inner, self.scales[place][:num])

    def forward(self, rows: Tensor, num: int | None = None) -> Tensor:
        """Evaluates each member (or the first `num`) on all rows: [R, in] -> [N, R, out]."""
        members = len(self.weights[0][:num])
        hidden = self.layer(0, rows.expand(members, *rows.shape), num)
        for block in range(len(self.scales) - 1):
            inner = self.layer(1 + 2 * block, self.normed(block, hidden, num), num).relu()
            hidden = hidden + self.layer(2 + 2 * block, inner, num)
        return self.layer(len(self.weights) - 1, self.normed(len(self.scales) - 1, hidden, num), num)


class OneResidual(nn.Module):
    """One residual network on rows of any axes."""

    def __init__(self, inner: ResidualNetworks) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, rows: Tensor) -> Tensor:
        """Returns outputs [..., out]."""
        return self.inner(rows.flatten(0, -2)).view(*rows.shape[:-1], -1)


@dataclass(frozen=True)
class Residual(Vectors):
    """`blocks` residual blocks of `width` units, with 4 * width inside: x + linear(relu(linear(norm(x)))).

    The path from input to output is linear but for the last norm, so that a simple function needs nothing of the
    blocks. SimBa has `Standardised(Residual())`, on running statistics. Degenerate: without blocks it is linear, then a
    norm.
    """

    width: int = 128
    blocks: int = 1
    scale_free: ClassVar[bool] = True

    def network(self, num_inputs: int, ask: Ask) -> nn.Module:
        """Returns the network; raises AssayError for a width or a number of blocks that makes none."""
        if self.width < 1 or self.blocks < 0:
            raise AssayError(f"Residual has width {self.width}, {self.blocks} blocks. Use such as width=128, blocks=1")
        net = ResidualNetworks(max(1, ask.members), (num_inputs, self.width, ask.num), self.blocks, ask.gain)
        return net if ask.members else OneResidual(net)
