"""A peer's layers under our names, the same way for values and for gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Read = Callable[[Tensor], Tensor]
Tensors = dict[str, Tensor]


def value_of(parameter: Tensor) -> Tensor:
    """A copy of the parameter."""
    return parameter.detach().clone()


def slope_of(parameter: Tensor) -> Tensor:
    """A copy of its gradient; 0 where there is none."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


def linear(*modules: nn.Module) -> list[nn.Linear]:
    """The linear layers inside, in order."""
    return [layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear)]


def perceptron(layers: list[nn.Linear], read: Read) -> Tensors:
    """Their layers under the names of our perceptron."""
    return {
        f"body.net.{2 * place}.{what}": read(getattr(layer, what))
        for place, layer in enumerate(layers)
        for what in ("weight", "bias")
    }


def named(model: str, tensors: Tensors) -> Tensors:
    """model.parameter, as the engine names gradients."""
    return {f"{model}.{name}": value for name, value in tensors.items()}
