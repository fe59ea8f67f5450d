"""Layers of trained models under FSDP2 while their gradients are computed.

Between updates every rank has the whole weights, as sampling, evaluation and checkpoints need them. For the passes of
an update it keeps its rows of each layer and frees the rest; FSDP2 gathers a layer when it is due, forward and
backward, and frees it again. What is outside of the layers (embeddings, heads) stays whole. Gradients are added as
without FSDP2, whose own exchange stays off, so the bits are equal.

Tensors are flat, or have the shape of the parameter they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import Keeping, Layered
from assay.engine.batch_shards import Ranks
from assay.engine.flat import Flat


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """Returns the layers of a model by their full names."""
    found = {id(layer) for part in model.modules() if isinstance(part, Layered) for layer in part.layers()}
    return {name: module for name, module in model.named_modules() if id(module) in found}


def check_sharded(recipe: Recipe, models: Mapping[str, nn.Module]) -> None:
    """Raises AssayError if FSDP2 would have no layers, or models share weights, or most of them are not trained."""
    trained = {name: models[name] for stage in recipe.stages for name in stage.trains}
    frozen = [name for name, model in trained.items() if not all(one.requires_grad for one in model.parameters())]
    if not any(layers_of(model) for model in trained.values()):
        raise AssayError("no trained model has layers in a row, which --sharded shares among ranks. Remove --sharded")
    if any(isinstance(module, Keeping) for model in trained.values() for module in model.modules()):
        raise AssayError("a trained model keeps numbers besides its weights, which --sharded cannot. Remove --sharded")
    if recipe.shared:
        raise AssayError(f"'{min(recipe.shared)}' shares the actor's weights, which --sharded cannot. Remove --sharded")
    if frozen:
        raise AssayError(f"'{frozen[0]}' has weights that are not trained, which --sharded cannot share. Remove it")


class Gathered:
    """The exchange of FSDP2 when it gathers a layer: by the group of the ranks, which notices those that are lost."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Returns memory for a layer."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        """Fills the output with the inputs of all ranks, and has ended when it returns."""
        self.ranks.fill(output_tensor, input_tensor)


class Twin:
    """A second instance of a model, with layers under FSDP2, which has memory only while it is used."""

    def __init__(self, model: nn.Module, flat: Flat, ranks: Ranks) -> None:
        from torch.distributed.fsdp import FSDPModule, fully_shard

        self.of, self.flat, self.ranks, self.model = model, flat, ranks, deepcopy(model)
        for own in self.model.parameters():
            own.data = own.data.clone()  # otherwise each is a view of all of them
        self.layers: list[tuple[FSDPModule, list[str]]] = []
        self.leaves: dict[str, Tensor] = dict(self.model.named_parameters())
        for name, layer in layers_of(self.model).items():
            sharded = fully_shard(layer, mesh=ranks.mesh(), reshard_after_forward=True)
            # Gradients are added by `batch_shards.summed`, in an order that the ranks do not change.
            sharded.set_requires_gradient_sync(False)
            sharded.set_custom_all_gather(cast(Any, Gathered(ranks)))
            sharded.unshard()  # what modules compute with from now on: the same tensors after each gathering
            found = {f"{name}.{own}": tensor for own, tensor in layer.named_parameters()}
            sharded.reshard()
            self.leaves |= found
            self.layers.append((sharded, list(found)))
        self.rows: dict[str, Tensor] = {name: local(own) for name, own in self.model.named_parameters()}
        self.memory = [(each.untyped_storage(), each.untyped_storage().nbytes()) for each in self.rows.values()]
        self.whole: list[tuple[torch.UntypedStorage, int]] = []
        resize(self.memory, awake=False)

    @property
    def tensors(self) -> list[Tensor]:
        """What gradients are taken of, in the order of the flat tensors."""
        return [self.leaves[name] for name in self.flat.names]

    @torch.no_grad()
    def take(self) -> None:
        """Copies this rank's rows from the whole model, and frees the model's memory."""
        if not all(piece.untyped_storage().resizable() for piece in self.flat.pieces):
            self.flat.place([piece.clone() for piece in self.flat.pieces])  # numpy has seen them, and may keep them
        self.whole = [(piece.untyped_storage(), piece.untyped_storage().nbytes()) for piece in self.flat.pieces]
        resize(self.memory, awake=True)
        for name, own in zip(self.flat.names, self.flat.tensors, strict=True):
            mine = self.rows[name]
            # FSDP2 cuts the first axis into equal parts, the last one shorter.
            first = 0 if mine.shape == own.shape else self.ranks.rank * -(-len(own) // self.ranks.num)
            mine.copy_(own[first : first + len(mine)] if own.dim() else own)
        for buffer, whole in zip(self.model.buffers(), self.of.buffers(), strict=True):
            buffer.copy_(whole)
        resize(self.whole, awake=False)

    @torch.no_grad()
    def give(self) -> None:
        """Gathers the whole model again, and frees the rows."""
        resize(self.whole, awake=True)
        whole = dict(zip(self.flat.names, self.flat.tensors, strict=True))
        for layer, names in self.layers:  # one at a time: two whole models would be in memory
            layer.unshard()
            for name in names:
                whole.pop(name).copy_(self.leaves[name])
            layer.reshard()
        for name, own in whole.items():
            own.copy_(self.leaves[name])
        resize(self.memory, awake=False)


class Sharding:
    """The twins of all trained models, and those in use."""

    def __init__(
        self, recipe: Recipe, models: Mapping[str, nn.Module], flats: Mapping[str, Flat], ranks: Ranks
    ) -> None:
        names = dict.fromkeys(name for stage in recipe.stages for name in stage.trains)
        self.twins = {name: Twin(models[name], flats[name], ranks) for name in names if layers_of(models[name])}
        self.active: dict[str, Twin] = {}

    @contextmanager
    def use(self, names: Sequence[str]) -> Iterator[None]:
        """Computes with the twins of these models, while the models themselves have no memory. All ranks call it."""
        self.active = {name: self.twins[name] for name in names if name in self.twins}
        for twin in self.active.values():
            twin.take()
        try:
            yield
        finally:
            used, self.active = self.active, {}
            for twin in used.values():
                twin.give()

    def models(self, whole: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
        """Returns the models with those in use replaced by their twins."""
        return {**whole, **{name: twin.model for name, twin in self.active.items()}}


def idle_passes(
    parts: Sequence[Experience | None],
    place: int,
    num_ranks: int,
    passes: Callable[[Experience], Iterable[Experience]],
) -> Iterator[Experience]:
    """Yields a micro-batch for each one that this rank lacks in the round of a shard: FSDP2 gathers layers on all ranks
    at once, so all take equally many passes; the gradient of these is not used.
    """
    size = len(parts) // num_ranks
    nums = [0 if part is None else sum(1 for _ in passes(part)) for part in parts[place % size :: size]]
    some = next(part for part in parts if part is not None)
    for _ in range(max(nums) - nums[place // size]):
        yield next(iter(passes(some)))


def local(parameter: Any) -> Tensor:
    """Returns the rows of a parameter that this rank has: all, if it is not under FSDP2."""
    from torch.distributed.tensor import DTensor

    found: Tensor = parameter.to_local() if isinstance(parameter, DTensor) else parameter.data
    return found


def resize(memory: Sequence[tuple[torch.UntypedStorage, int]], *, awake: bool) -> None:
    """Allocates or frees the memory of tensors, which stay the same objects."""
    for storage, size in memory:
        storage.resize_(size if awake else 0)
