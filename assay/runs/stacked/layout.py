"""Where the numbers of S seeds lie: parameter by parameter, each [S, ...] in one piece. Axes: S seeds, P parameters.

Seed by seed, a layer's weights would be S pieces far apart, and every product would copy them together first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.engine.flat import Flat
from assay.core.errors import AssayError


class Layout:
    """The parameters of S models of one kind in one row of S x P numbers."""

    def __init__(self, flat: Flat, num: int) -> None:
        self.num, self.names = num, flat.names
        self.shapes = [tensor.shape for tensor in flat.tensors]
        self.sizes = [tensor.numel() for tensor in flat.tensors]

    def parts(self, values: Tensor) -> list[Tensor]:
        """Views [S, numbers of a parameter]."""
        return [part.view(self.num, -1) for part in values.split([self.num * size for size in self.sizes])]

    def split(self, values: Tensor) -> dict[str, Tensor]:
        """Views [S, ...], by the parameters' names."""
        shaped = [part.view(self.num, *shape) for part, shape in zip(self.parts(values), self.shapes, strict=True)]
        return dict(zip(self.names, shaped, strict=True))

    def joined(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The row of numbers that `split` took apart."""
        return torch.cat([tensors[name].reshape(-1) for name in self.names])

    def stacked(self, rows: Sequence[Tensor]) -> Tensor:
        """The row of numbers of S models' flat parameters [P]."""
        return torch.cat([part.flatten() for part in torch.stack(list(rows)).split(self.sizes, 1)])

    def row(self, values: Tensor, place: int) -> Tensor:
        """One model's flat parameters [P]."""
        return torch.cat([part[place] for part in self.parts(values)])


def stacked(states: Sequence[Any], layouts: Sequence[Layout], device: str) -> Any:
    """An optimizer's state for all seeds: its lists have a flat tensor for each model that it moves; its numbers must
    be equal.
    """
    first = states[0]
    if isinstance(first, Mapping):
        return {name: stacked([state[name] for state in states], layouts, device) for name in first}
    if isinstance(first, list):
        return [layout.stacked(rows).to(device) for layout, *rows in zip(layouts, *states, strict=True)]
    if len(numbers := {float(state) for state in states}) > 1:
        raise AssayError(f"the optimizers of these seeds have taken {sorted(numbers)} steps; stack equal ones")
    return first.to(device, copy=True) if isinstance(first, Tensor) else first


def unstacked(state: Any, layouts: Sequence[Layout], place: int) -> Any:
    """The state of one seed, on the CPU."""
    if isinstance(state, Mapping):
        return {name: unstacked(item, layouts, place) for name, item in state.items()}
    if isinstance(state, list):
        return [layout.row(values, place).cpu() for layout, values in zip(layouts, state, strict=True)]
    return state.to("cpu", copy=True) if isinstance(state, Tensor) else state


def copied(state: Any) -> Any:
    """The tree with its tensors copied."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, Mapping):
        return {name: copied(item) for name, item in state.items()}
    return [copied(item) for item in state] if isinstance(state, list) else state
