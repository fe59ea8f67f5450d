"""A model as the engine uses it: parameters in one flat tensor, modules that grow, and the fits of an update for
those.

Axes: N instances of a model; other tensors are flat, or have the shape of a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.optimizers import widened
from assay.core.record import Fit, State
from assay.core.slots import Grown, Keeping


class Flat:
    """A model's trained parameters as views into one tensor for each dtype (`pieces`), so that optimizers, clipping and
    target networks need one operation each; and its modules that grow, which have no parameters. Frozen parameters
    (those below an adapter) stay where they are: they are not stepped, copied to target networks, or saved.
    """

    def __init__(self, model: nn.Module) -> None:
        named = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        self.num_parameters = sum(tensor.numel() for tensor in model.parameters())
        self.names, self.tensors = tuple(named), tuple(named.values())
        device = next(chain(self.tensors, model.buffers()), torch.empty(0)).device
        # One flat tensor cannot hold two dtypes; most models have one.
        kinds = list(dict.fromkeys(tensor.dtype for tensor in self.tensors)) or [torch.float32]
        self.piece_of = [kinds.index(tensor.dtype) for tensor in self.tensors]
        of_kind = ([own.detach() for own in self.tensors if own.dtype == kind] for kind in kinds)
        self.pieces = [flatten_tensors(tensors, device) for tensors in of_kind]
        self.grown = {name: module for name, module in model.named_modules() if isinstance(module, Grown)}
        self.keeping = {name: module for name, module in model.named_modules() if isinstance(module, Keeping)}
        self.place(self.pieces)

    def place(self, pieces: list[Tensor]) -> None:
        """Makes flat tensors that are laid out as `pieces` the memory of the parameters."""
        self.pieces = pieces
        for tensor, place in zip(self.tensors, self.split(*pieces), strict=True):
            tensor.data = place  # through .data the parameter stays the same leaf for modules and autograd

    @property
    def values(self) -> Tensor:
        """All parameters in one flat tensor: the parameters themselves, or a copy if they have several dtypes."""
        return self.pieces[0] if len(self.pieces) == 1 else torch.cat(self.pieces)

    def split(self, *pieces: Tensor) -> list[Tensor]:
        """Returns views of flat tensors that are laid out as `pieces`, one for each parameter."""
        sizes: list[list[int]] = [[] for _ in pieces]
        for tensor, place in zip(self.tensors, self.piece_of, strict=True):
            sizes[place].append(tensor.numel())
        rest = [iter(piece.split(some)) for piece, some in zip(pieces, sizes, strict=True)]
        return [next(rest[place]).view_as(own) for own, place in zip(self.tensors, self.piece_of, strict=True)]

    def snapshot(self) -> State:
        """Returns parameters, growth and kept numbers by name."""
        growth = {name: module.growth() for name, module in self.grown.items()}
        growth |= {name: module.kept() for name, module in self.keeping.items()}
        return {**dict(zip(self.names, self.split(*self.pieces), strict=True)), **growth}

    def restore(self, state: State) -> None:
        """Overwrites the parameters in place and restores growth and kept numbers."""
        # In place: optimizers, graphs and target networks hold views of this memory.
        for name, place in zip(self.names, self.split(*self.pieces), strict=True):
            place.copy_(state[name])
        for name, module in self.grown.items():
            module.regrow(state[name])
        for name, keeper in self.keeping.items():
            keeper.keep(state[name])

    def follow(self, other: Flat, rate: float) -> None:
        """Updates this model towards another of the same kind: values <- values + rate * (other - values)."""
        for own, piece in zip(self.pieces, other.pieces, strict=True):
            own.lerp_(piece, rate)  # one kernel for all parameters; exactly the other's at rate 1
        for mine, theirs in zip(self.grown.values(), other.grown.values(), strict=True):
            mine.follow(theirs, rate)

    def follow_where(self, goes: Tensor, other: Flat, rate: float) -> None:
        """Calls `follow` if `goes` is true; with one flag per member, updates those members along the first axis of
        every parameter. Grown modules have no members.
        """
        if not goes.dim():
            if bool(goes):
                self.follow(other, rate)
            return
        for mine, theirs in zip(self.tensors, other.tensors, strict=True):
            where = goes.to(mine.device).view(-1, *[1] * (mine.dim() - 1))
            mine.copy_(torch.where(where, mine.lerp(theirs, rate), mine))

    def keep_as(self, other: Flat) -> None:
        """Sets the kept numbers to those of a model of the same kind."""
        for mine, theirs in zip(self.keeping.values(), other.keeping.values(), strict=True):
            mine.keep(theirs.kept())

    def load_beside(self, weights: Mapping[str, Tensor], name: str) -> None:
        """Sets what has grown, and what is kept beside the parameters, of a model of this name from weights under their
        full names; a module whose numbers are not all among them stays as it is.
        """
        for own, module in self.grown.items():
            growth = {key: weights.get(f"{name}.{own}.{key}") for key in module.growth()}
            if all(tensor is not None for tensor in growth.values()):
                module.regrow(growth)
        for own, keeper in self.keeping.items():
            kept = {key: weights.get(f"{name}.{own}.{key}") for key in keeper.kept()}
            if kept and all(tensor is not None for tensor in kept.values()):
                keeper.keep(kept)


def share_frozen(model: nn.Module, other: nn.Module) -> nn.Module:
    """Returns the model with the frozen parameters of another of its kind in place of its own, which are equal."""
    # Otherwise a target network of a model with adapters would hold the whole base model a second time.
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        if not theirs.requires_grad:
            mine.data = theirs.data
    return model


class Gradient:
    """The gradient of several models, one flat tensor for each of their pieces, accumulated over micro-batches in
    float32 or wider, because sums in bfloat16 would lose small terms. Parameters without a gradient have zeros.
    """

    def __init__(self, models: Sequence[Flat]) -> None:
        by_model = [[torch.zeros_like(piece, dtype=widened(piece)) for piece in model.pieces] for model in models]
        self.flat = [piece for pieces in by_model for piece in pieces]
        both = zip(models, by_model, strict=True)
        self.places = [place for model, pieces in both for place in model.split(*pieces)]
        self.is_empty = True

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        """Adds the gradients of one micro-batch, one per parameter; copies the first, so that they keep their bits."""
        there = [(place, own) for place, own in zip(self.places, gradients, strict=True) if own is not None]
        if there:
            # One call for all parameters: small models spend more time on launching kernels than in them.
            into, new = ([pair[side] for pair in there] for side in (0, 1))
            (torch._foreach_copy_ if self.is_empty else torch._foreach_add_)(into, new)
        self.is_empty = False


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Returns copies of what a model has learned, by full names: parameters, growth and kept numbers; no frozen
    parameters beside these.
    """
    named = dict(model.named_parameters())
    learned = {name: tensor for name, tensor in named.items() if tensor.requires_grad} or named
    for name, module in model.named_modules():
        beside = module.growth() if isinstance(module, Grown) else module.kept() if isinstance(module, Keeping) else {}
        learned |= {f"{name}.{key}": tensor for key, tensor in beside.items()}
    return {name: tensor.detach().clone() for name, tensor in learned.items()}


def flatten_tensors(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Returns all numbers in one flat tensor on `device`; an empty one if there are none."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]) if tensors else torch.empty(0, device=device)


def fits_of(outputs: Sequence[tuple[str, Any, Tensor, Tensor]], gradients: Sequence[Tensor], mask: Tensor) -> list[Fit]:
    """Returns the fit of each recorded (model, module, inputs, outputs); outputs belong to the batch's first columns,
    and only decisions (mask true) are included.
    """
    fits = []
    for (name, module, inputs, output), gradient in zip(outputs, gradients, strict=True):
        # A critic may have seen one column less than the record has.
        decided = mask[:, : output.shape[1]]
        fits.append(Fit(name, module, inputs.detach()[decided], gradient[decided]))
    return fits


def merged(parts: Sequence[Sequence[Fit]]) -> list[Fit]:
    """Returns the fits of all micro-batches as one for each module."""
    by_module: dict[int, list[Fit]] = {}
    for fit in (fit for part in parts for fit in part):
        by_module.setdefault(id(fit.module), []).append(fit)
    return [
        Fit(one.name, one.module, torch.cat([f.inputs for f in fits]), torch.cat([f.gradient for f in fits]))
        for fits in by_module.values()
        for one in fits[:1]
    ]
