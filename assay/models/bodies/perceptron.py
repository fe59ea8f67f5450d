"""Small building blocks of networks: what a context is turned into, and perceptrons with orthogonal weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.spaces import Box, Context, Spec


def feature_size(spec: Spec) -> int:
    """Length of `features` for this task."""
    if isinstance(spec.observation, Box):
        return spec.observation.size + (0 if spec.goal is None else spec.goal.size)
    raise AssayError(
        f"a perceptron cannot read {spec.observation}; use Table() for numbered states, Transformer() for tokens"
    )


def features(context: Context) -> Tensor:
    """The observation vector, followed by the goal where there is one."""
    if "observation" in context:
        seen = context["observation"]
        return torch.cat((seen, context["goal"]), -1) if "goal" in context else seen
    raise AssayError(
        "a perceptron reads context['observation'], which this task does not give; use Table() for numbered states"
    )


def perceptron(
    num_inputs: int,
    num_outputs: int,
    hidden: Sequence[int],
    *,
    activation: type[nn.Module] = nn.Tanh,
    output_gain: float = 1.0,
) -> nn.Sequential:
    """Linear layers with orthogonal weights (gain sqrt 2 inside, `output_gain` at the end) and zero biases."""
    sizes = [num_inputs, *hidden]
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        layers += [orthogonal(nn.Linear(fan_in, fan_out), 2.0**0.5), activation()]
    return nn.Sequential(*layers, orthogonal(nn.Linear(sizes[-1], num_outputs), output_gain))


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """The layer with orthogonal weights and zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Ensemble(nn.Module):
    """N perceptrons side by side, one batched product a layer: [R, in] -> [N, R, out]. Axes: N members, R rows."""

    def __init__(self, num: int, num_inputs: int, num_outputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        sizes = [num_inputs, *hidden, num_outputs]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
            bound = fan_in**-0.5
            self.weights.append(nn.Parameter(torch.empty(num, fan_in, fan_out).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(num, 1, fan_out).uniform_(-bound, bound)))

    @property
    def layers(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """(weight, bias) of each layer, read anew: whoever puts other tensors in the parameters' place is heard."""
        # ParameterList's own iterator takes several times as long, which small networks feel.
        held: tuple[dict[str, Any], ...] = (self.weights._parameters, self.biases._parameters)
        return tuple(zip(held[0].values(), held[1].values(), strict=True))

    def forward(self, rows: Tensor, num: int | None = None) -> Tensor:
        """Each member (or the first `num`) on all rows."""
        layers = self.layers if num is None else tuple((weight[:num], bias[:num]) for weight, bias in self.layers)
        hidden = rows.expand(len(layers[0][0]), *rows.shape)
        for weight, bias in layers[:-1]:
            hidden = torch.baddbmm(bias, hidden, weight).relu_()
        return torch.baddbmm(layers[-1][1], hidden, layers[-1][0])
