"""Perceptrons with layer norm before each activation (arXiv:1607.06450). Axes: N members, R rows.

A normalised layer cannot grow without bound far from the data: |output| <= |scale| * sqrt(width) + |shift|.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.core.slots import Ask
from assay.models.bodies.perceptron import Ensemble, Perceptron, Vectors, layered, orthogonal


class NormedEnsemble(nn.Module):
    """`Ensemble` with layer norm before each ReLU; each member has its own scale and shift."""

    def __init__(self, num: int, num_inputs: int, num_outputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.linear = Ensemble(num, num_inputs, num_outputs, hidden)
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(num, 1, width)) for width in hidden)
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(num, 1, width)) for width in hidden)

    def forward(self, rows: Tensor, num: int | None = None) -> Tensor:
        """Evaluates each member (or the first `num`) on all rows, [R, in] -> [N, R, out], or on its own [N, R, in]."""
        layers = [(weight[:num], bias[:num]) for weight, bias in self.linear.layers]
        hidden = rows if rows.dim() > 2 else rows.expand(len(layers[0][0]), *rows.shape)
        for (weight, bias), scale, shift in zip(layers, self.scales, self.shifts, strict=False):
            inner = torch.baddbmm(bias, hidden, weight)
            normed = nn.functional.layer_norm(inner, inner.shape[-1:])
            hidden = torch.addcmul(shift[:num], normed, scale[:num]).relu_()
        return torch.baddbmm(layers[-1][1], hidden, layers[-1][0])


def normed_perceptron(num_inputs: int, num_outputs: int, hidden: Sequence[int], output_gain: float) -> nn.Sequential:
    """Returns linear layers with orthogonal weights, layer norm and ReLU between them."""
    return layered(
        num_inputs, num_outputs, hidden, orthogonal, lambda width: (nn.LayerNorm(width), nn.ReLU()), output_gain
    )


@dataclass(frozen=True)
class Normalised(Vectors):
    """A perceptron with layer norm before each ReLU, as in RLPD (arXiv:2302.02948)."""

    hidden: tuple[int, ...] = (256, 256)
    scale_free: ClassVar[bool] = True

    def network(self, num_inputs: int, ask: Ask) -> nn.Module:
        # Verdicts were measured with weights drawn after those of a plain perceptron: its draws are made and discarded.
        Perceptron(self.hidden).network(num_inputs, ask)
        if ask.members:
            return NormedEnsemble(ask.members, num_inputs, ask.num, self.hidden)
        return normed_perceptron(num_inputs, ask.num, self.hidden, ask.gain)
