"""The parameters of S models of one kind as one flat tensor. Axes: S seeds, P parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.engine.flat import Flat, flatten_tensors


class StackedFlat(Flat):
    """A `Flat` whose parameters are [S, ...]: the numbers of one parameter for all seeds, then the next parameter's.

    Optimizers, target networks and gradients use it as they use a single model's.
    """

    # Parameter by parameter and not seed by seed: a layer's weights [S, out, in] are then in one piece. Seed by seed
    # they would be S pieces P numbers apart, and every batched product would copy them together first.
    def __init__(self, flats: Sequence[Flat], device: str, trains: bool) -> None:
        self.single, self.names, self.grown = flats[0], flats[0].names, {}
        self.keeping = {}
        self.num_parameters = sum(flat.num_parameters for flat in flats)
        self.pieces = [self.stacked([flat.values for flat in flats]).to(device)]
        self.piece_of = self.single.piece_of
        sizes = [len(flats) * tensor.numel() for tensor in self.single.tensors]
        parts = zip(self.values.split(sizes), self.single.tensors, strict=True)
        # Detached, so that autograd sees leaves and not views of a tensor that optimizers change in place.
        self.tensors = tuple(
            part.view(len(flats), *tensor.shape).detach().requires_grad_(trains) for part, tensor in parts
        )

    def stacked(self, rows: Sequence[Tensor]) -> Tensor:
        """Returns flat tensors [P] of S single models as one of S x P numbers."""
        parts = zip(*(self.single.split(row) for row in rows), strict=True)
        return flatten_tensors([torch.stack(same) for same in parts], rows[0].device)

    def row(self, values: Tensor, place: int) -> Tensor:
        """Returns the flat tensor [P] of one seed."""
        return flatten_tensors([part[place] for part in self.split(values)], values.device)

    def by_seed(self, values: Tensor) -> list[Tensor]:
        """Returns views [S, numbers of a parameter]."""
        return [part.view(len(part), -1) for part in self.split(values)]


def stacked(states: Sequence[Any], flats: Sequence[StackedFlat], device: str) -> Any:
    """Returns the optimizer states of all seeds as one: a list holds a flat tensor for each trained model, in the
    order of `flats`; numbers, such as the step count, are shared and must be equal.
    """
    first = states[0]
    if isinstance(first, Mapping):
        return {name: stacked([state[name] for state in states], flats, device) for name in first}
    if isinstance(first, list):
        return [flat.stacked(rows).to(device) for flat, *rows in zip(flats, *states, strict=True)]
    if len(numbers := {float(state) for state in states}) > 1:
        raise AssayError(f"the optimizers of these seeds have taken {sorted(numbers)} steps. Stack equal ones.")
    return first.to(device, copy=True) if isinstance(first, Tensor) else first


def unstacked(state: Any, flats: Sequence[StackedFlat], place: int) -> Any:
    """Returns the optimizer state of one seed, as a single engine has it."""
    if isinstance(state, Mapping):
        return {name: unstacked(item, flats, place) for name, item in state.items()}
    if isinstance(state, list):
        return [flat.row(values, place) for flat, values in zip(flats, state, strict=True)]
    return state
