"""Bodies that read vectors: features of a context, and perceptrons with orthogonal weights.

Axes: N members, R rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body
from assay.core.spaces import Box, Context, Discrete, MultiDiscrete, Spec


def feature_size(spec: Spec) -> int:
    """Returns the length of `features` for this task."""
    if isinstance(spec.observation, Box):
        return spec.observation.size + (0 if spec.goal is None else spec.goal.size)
    raise AssayError(
        f"a perceptron cannot read {spec.observation}. Use Table() for numbered states, Convolution() for images, "
        "Transformer() for tokens"
    )


def features(context: Context) -> Tensor:
    """Returns the observation vector, followed by the goal if there is one."""
    if "observation" in context and "image" not in context:
        seen = context["observation"]
        return torch.cat((seen, context["goal"]), -1) if "goal" in context else seen
    raise AssayError(
        "a perceptron reads context['observation'], which this task does not have. Use Table() for numbered states"
    )


def perceptron(
    num_inputs: int,
    num_outputs: int,
    hidden: Sequence[int],
    *,
    activation: type[nn.Module] = nn.Tanh,
    output_gain: float = 1.0,
) -> nn.Sequential:
    """Returns linear layers with orthogonal weights (gain sqrt 2 inside, `output_gain` at the end) and zero biases."""
    return layered(num_inputs, num_outputs, hidden, orthogonal, lambda width: (activation(),), output_gain)


def layered(
    num_inputs: int,
    num_outputs: int,
    hidden: Sequence[int],
    initial: Callable[[nn.Linear, float], nn.Linear],
    between: Callable[[int], Sequence[nn.Module]],
    output_gain: float = 1.0,
) -> nn.Sequential:
    """Returns linear layers with weights of `initial(layer, gain)`, each but the last followed by `between(width)`."""
    sizes = [num_inputs, *hidden]
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        layers += [initial(nn.Linear(fan_in, fan_out), 2.0**0.5), *between(fan_out)]
    return nn.Sequential(*layers, initial(nn.Linear(sizes[-1], num_outputs), output_gain))


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """Returns the layer with orthogonal weights and zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Ensemble(nn.Module):
    """N perceptrons side by side, one batched product per layer: [R, in] -> [N, R, out]. Axes: N members, R rows."""

    def __init__(
        self,
        num: int,
        num_inputs: int,
        num_outputs: int,
        hidden: Sequence[int],
        activation: type[nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        sizes = [num_inputs, *hidden, num_outputs]
        self.activate: Callable[[Tensor], Tensor] = torch.relu_ if activation is nn.ReLU else activation()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
            bound = fan_in**-0.5
            self.weights.append(nn.Parameter(torch.empty(num, fan_in, fan_out).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(num, 1, fan_out).uniform_(-bound, bound)))

    @property
    def layers(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Returns (weight, bias) of each layer, re-read on every call, so that torch.func can substitute parameters."""
        # ParameterList's own iterator takes several times as long, which matters for small networks.
        held: tuple[dict[str, Any], ...] = (self.weights._parameters, self.biases._parameters)
        return tuple(zip(held[0].values(), held[1].values(), strict=True))

    def forward(self, rows: Tensor, num: int | None = None) -> Tensor:
        """Evaluates each member (or the first `num`) on all rows, or on rows of its own [N, R, in]."""
        layers = self.layers if num is None else tuple((weight[:num], bias[:num]) for weight, bias in self.layers)
        hidden = rows if rows.dim() > 2 else rows.expand(len(layers[0][0]), *rows.shape)
        for weight, bias in layers[:-1]:
            hidden = self.activate(torch.baddbmm(bias, hidden, weight))
        return torch.baddbmm(layers[-1][1], hidden, layers[-1][0])


# ---------------------------------------------------------------------------------------------------- bodies
@runtime_checkable
class Vectors(Body, Protocol):
    """A body that is a network on feature vectors; heads may append features of their own."""

    def network(self, num_inputs: int, ask: Ask) -> nn.Module:
        """Returns a network [..., in] -> [..., out]; with members [R, in] -> [N, R, out], or the first `num`."""

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns the network on observation and goal; a continuous action is an input, a discrete one selects."""
        size = feature_size(spec)
        if not ask.action:
            return Rows(self.network(size, ask), ask)
        if isinstance(spec.action, Discrete):
            every = replace(ask, shape=(spec.action.n, *ask.shape), action=False)
            return Chosen(Rows(self.network(size, every), every), len(ask.shape))
        if not isinstance(spec.action, Box):
            raise AssayError(no_input(spec.action))
        return Rows(self.network(size + spec.action.size, ask), ask)


def no_input(action: Any) -> str:
    """Returns what to do about actions that are no input of a network on vectors."""
    if isinstance(action, MultiDiscrete):
        return f"a value of actions needs one choice, the task has {action}. Try ppo or a2c"
    return f"a network on vectors cannot read {action}. Use Transformer() for tokens"


class Rows(nn.Module):
    """A network on the observation, and on the action if it is an input."""

    def __init__(self, net: nn.Module, ask: Ask) -> None:
        super().__init__()
        self.net, self.shape, self.num_members = net, ask.shape, ask.members

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns [..., *shape], or [N, ..., *shape]; there an action [N, ..., A] is one for each member."""
        seen = features(context)
        if action is not None and action.dim() > seen.dim():
            rows = torch.cat((seen.expand(len(action), *seen.shape), action), -1)
            return self.net(rows.flatten(1, -2), num).view(*rows.shape[:-1], *self.shape)
        rows = seen if action is None else torch.cat((seen, action), -1)
        if not self.num_members:
            return shaped(self.net(rows), self.shape)
        found = self.net(rows.flatten(0, -2), num)
        return found.view(len(found), *rows.shape[:-1], *self.shape)


def shaped(numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Returns [..., P] as [..., *shape]; an empty shape is one number."""
    return numbers.unflatten(-1, shape) if len(shape) > 1 else numbers if shape else numbers.squeeze(-1)


class Chosen(nn.Module):
    """Selects, from outputs for every discrete action, those of the given action."""

    def __init__(self, every: nn.Module, num_axes: int) -> None:
        super().__init__()
        self.every, self.num_axes = every, num_axes

    def forward(self, context: Context, action: Tensor, num: int | None = None) -> Tensor:
        """Returns [..., *shape], or [N, ..., *shape]."""
        every: Tensor = self.every(context, None, num)
        axis = every.dim() - 1 - self.num_axes
        place = action.expand(every.shape[:axis]).view(*every.shape[:axis], *[1] * (1 + self.num_axes))
        return every.gather(axis, place.expand(*every.shape[:axis], 1, *every.shape[axis + 1 :])).squeeze(axis)


def vectors(body: Body, who: str) -> Vectors:
    """Returns the body as one that reads vectors; raises AssayError if it does not."""
    if isinstance(body, Vectors):
        return body
    raise AssayError(f"{who} needs a body that reads vectors, and {type(body).__name__} does not. Use Perceptron()")


@dataclass(frozen=True)
class Perceptron(Vectors):
    """Fully connected layers of these sizes. The default `activation` is the head's: tanh for policies and state
    values, ReLU for action values and policies trained through them.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: type[nn.Module] | None = None

    def network(self, num_inputs: int, ask: Ask) -> nn.Module:
        activation = self.activation or ask.activation
        if ask.members:
            return Ensemble(ask.members, num_inputs, ask.num, self.hidden, activation)
        return perceptron(num_inputs, ask.num, self.hidden, activation=activation, output_gain=ask.gain)
