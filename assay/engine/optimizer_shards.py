"""Optimizer states that ranks keep by slices, and the step of an optimizer on its slice.

Tensors are flat, or have the shape of the parameter they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from assay.core.record import State, Sums
from assay.core.slots import Optimizer
from assay.engine.batch_shards import Ranks


def step(
    optimizer: Optimizer,
    values: list[Tensor],
    gradients: list[Tensor],
    sums: Sums,
    state: State,
    ranks: Ranks,
    shards: int,
) -> None:
    """Takes an optimizer's step on all ranks, of which each has a slice of the gradients: with its slice of values and
    state, which are then exchanged; or with the whole gradients, if the optimizer needs these.
    """
    if ranks.num == 1:
        optimizer.step(values, gradients, sums, state)
    elif optimizer.is_elementwise:
        optimizer.step([ranks.slice(value, shards) for value in values], gradients, sums, state)
        ranks.gather(values, shards)
    else:
        # It looks across numbers (norms of matrices, sums): every rank steps the whole, to the same bits.
        whole = [torch.empty_like(value, dtype=own.dtype) for value, own in zip(values, gradients, strict=True)]
        for place, own in zip(whole, gradients, strict=True):
            ranks.slice(place, shards).copy_(own)
        ranks.gather(whole, shards)
        optimizer.step(values, whole, sums, state)


def sliced(state: State, cut: Callable[[Tensor], Tensor]) -> State:
    """Returns the state of an elementwise optimizer with the tensors in its lists replaced by copies of their cuts."""
    found: State = {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            found[name] = sliced(dict(value), cut)
        else:
            found[name] = [cut(each).clone() for each in value] if isinstance(value, list) else value
    return found


def lists(state: State) -> State:
    """Returns the part of an elementwise optimizer's state that is cut into slices."""
    below = {name: lists(value) for name, value in state.items() if isinstance(value, dict)}
    return below | {name: value for name, value in state.items() if isinstance(value, list)}


def overwrite(mine: State, saved: Mapping[str, Any]) -> None:
    """Copies a saved state into `mine`: tensors in place, other values replaced."""
    for name, value in saved.items():
        if isinstance(value, Mapping):
            overwrite(mine[name], value)
        elif isinstance(mine.get(name), Tensor):
            mine[name].copy_(torch.as_tensor(value))
        elif isinstance(value, list) and value and isinstance(value[0], Tensor):
            for place, item in zip(mine[name], value, strict=True):
                place.copy_(item)
        else:
            mine[name] = value
