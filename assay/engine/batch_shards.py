"""A batch in shards: the plan cuts it, any rank computes a part, and parts are added in a fixed order.

So the numbers depend on the number of shards and not on the number of ranks.

Tensors are flat, or have the shape of the parameter they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.engine.batching import units
from assay.engine.updates import Slip, Update

Item = TypeVar("Item")
LINE = 64
"""Slices begin at multiples of so many numbers: vector units then compute each as they do in the whole tensor."""


class Ranks:
    """The processes that share the shards of a run: here one, which has all of them."""

    rank, num = 0, 1
    signal = 0
    """The stop signal that any rank has received; 0 if none has."""

    def mine(self, shards: int) -> range:
        """Returns the shards of this rank: a block of a power of two, so that its sum is a branch of the tree."""
        size = shards // self.num
        return range(self.rank * size, (self.rank + 1) * size)

    def place(self, device: str) -> None:
        """Computes on this device from now on. All ranks call it."""

    def meet(self, digest: Callable[[], int]) -> None:
        """Begins a step; `digest` is a number that changes with the weights. All ranks call it."""

    def shared(self, own: Sequence[Item]) -> list[Item]:
        """Returns the items of all ranks, those of rank 0 first. All ranks call it."""
        return list(own)

    def told(self, make: Callable[[], Item]) -> Item:
        """Returns make() as rank 0 computes it; the other ranks do not call `make`. All ranks call it."""
        return make()

    def alike(self, own: Tensor) -> list[Tensor]:
        """Returns the tensors of all ranks, which have one shape. All ranks call it."""
        return [own]

    def slice(self, flat: Tensor, shards: int) -> Tensor:
        """Returns the view of a flat tensor that this rank steps: the parts `mine` of `shards`."""
        size, mine = part_size(len(flat), shards), self.mine(shards)
        return flat[mine.start * size : mine.stop * size]

    def scattered(self, own: list[Tensor], shards: int) -> list[Tensor]:
        """Returns this rank's slice of the sum of all ranks' tensors, added as a binary tree. All ranks call it."""
        return own

    def fill(self, output: Tensor, own: Tensor) -> None:
        """Fills the output with the tensors of all ranks, which have one shape. All ranks call it."""
        output.copy_(own)

    def mesh(self) -> Any:
        """Returns the ranks as FSDP2 needs them; one process has no use for it."""
        raise AssayError("one process has no other ranks to share layers with. Use --ranks 2 or more")

    def gather(self, tensors: list[Tensor], shards: int) -> None:
        """Copies the slice of each rank into every other's tensors. All ranks call it."""


ALONE = Ranks()
"""One process."""


def cut(batch: Experience, together: frozenset[str], shards: int) -> list[Experience | None]:
    """Returns the rows of each shard, in order; None for one without rows. Rows with equal values of a named column
    stay in one shard. A batch without rows is the first shard's.
    """
    if not len(batch):
        return [batch, *[None] * (shards - 1)]
    _, unit = torch.unique(units(batch, together), return_inverse=True)
    # Neighbouring units, about equally many in each shard, whatever the ranks.
    place = unit * shards // (int(unit.max()) + 1)
    found = [(place == shard).nonzero().squeeze(1).to(batch.mask.device) for shard in range(shards)]
    return [batch.rows(index) if len(index) else None for index in found]


def part_size(length: int, shards: int) -> int:
    """Returns the numbers of a part if so many are cut into `shards` of whole lines; the last parts have fewer."""
    return -(-length // (shards * LINE)) * LINE


def digest(tensors: Iterable[Tensor]) -> int:
    """Returns a number that changes with the bits of the tensors."""
    return hash(tuple(bit_sum(tensor) for tensor in tensors))


def bit_sum(tensor: Tensor) -> int:
    """Returns the sum of the bits of the numbers, as whole numbers: another one if a number is another one."""
    # Of integers: a NaN equals itself, -0 is not 0, and the order of the sum changes nothing.
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return int(tensor.view(kinds[tensor.itemsize]).sum())


def added(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    """Returns left + right, in place of left."""
    torch._foreach_add_(left, right)
    return left


def tree_sum(parts: Iterable[list[Tensor]]) -> list[Tensor]:
    """Returns the sum of 2^k lists of tensors as a binary tree, ((0 + 1) + (2 + 3)) + ...; holds at most k + 1 lists
    at a time.
    """
    held: list[tuple[int, list[Tensor]]] = []
    for part in parts:
        size = 1
        # Two branches of equal size are one branch: the order is that of the tree, not that of arrival.
        while held and held[-1][0] == size:
            part, size = added(held.pop()[1], part), 2 * size
        held.append((size, part))
    assert len(held) == 1, "the number of parts is not a power of two"
    return held[0][1]


def summed(
    ranks: Ranks,
    shards: int,
    slopes: Callable[[int, Update], list[Tensor] | None],
    zeros: Callable[[], list[Tensor]],
    result: Update,
) -> list[Tensor]:
    """Returns this rank's slice of the gradient summed over all shards, [] if none has one; adds their metrics to the
    result in order, and the norm of each shard's part of each tensor.

    A shard without a gradient counts as zeros, since -0 + 0 has other bits than -0 alone.
    """
    own: list[tuple[Any, list[Slip], bool]] = []

    def each() -> Iterable[list[Tensor]]:
        for place in ranks.mine(shards):
            into = Update(result.stage)
            found = slopes(place, into)
            own.append((into.sums, into.slips, found is not None))
            yield zeros() if found is None else found

    total = tree_sum(each())
    sizes = [part_size(len(flat), shards) for flat in total]
    mine = ranks.scattered(total, shards)
    # Metrics and norms in one exchange: the smallest one takes half a millisecond between two processes.
    everything = ranks.shared([(own, part_norms(mine, sizes, len(own)))])
    for sums, slips, _ in (one for theirs, _ in everything for one in theirs):
        for name, entries in sums.items():
            result.sums.setdefault(name, []).extend(entries)
        result.slips += slips
    if not any(has for theirs, _ in everything for *_, has in theirs):
        return []
    by_rank = [norms for _, norms in everything]
    result.norms = [torch.cat(parts).to(mine[0].device) for parts in zip(*by_rank, strict=True)]
    return mine


def part_norms(slices: Sequence[Tensor], sizes: Sequence[int], num: int) -> list[Tensor]:
    """Returns the norms of the first `num` parts of each tensor, cut at these sizes; the ranks decide neither the parts
    nor their order.
    """
    return [
        torch.stack([flat[place * size : (place + 1) * size].norm() for place in range(num)])
        for flat, size in zip(slices, sizes, strict=True)
    ]
