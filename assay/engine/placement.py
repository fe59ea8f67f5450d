"""Where and how the models of a recipe run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from assay.core.slots import Layered, Packing

AT_ONCE = 16_384
"""Tokens that go through models on a GPU at once, where a placement does not say."""


@dataclass(frozen=True)
class Placement:
    """Where and how a recipe runs; changes speed, never the maths.

    `micro_batch`: rows that go through the models at once (0: all). `precision`: bfloat16 runs the models under
    autocast, parameters and optimizer stay float32. `tokens`: columns x rows that go through the models at once (0: no
    limit, on a GPU 16,384 where `micro_batch` says nothing); rows of similar length then go together, so that few
    columns are padding. `recompute`: layers keep their inputs only and run again in the backward pass. `compiled`:
    layers are compiled. `packed`: rows stand behind each other where a model can take them so, and what rows of a group
    begin with goes through it once; `tokens` then counts what goes through (None: on a GPU in half precision).
    """

    device: str = "cpu"
    micro_batch: int = 0
    precision: torch.dtype | None = None
    tokens: int = 0
    recompute: bool = False
    compiled: bool = False
    packed: bool | None = None

    @property
    def is_on_gpu(self) -> bool:
        """Whether models are not in the host's memory."""
        return torch.device(self.device).type != "cpu"

    @property
    def at_once(self) -> int:
        """Tokens that go through the models at once; 0 for no limit."""
        return self.tokens or (AT_ONCE if self.is_on_gpu and not self.micro_batch else 0)


def arrange(model: nn.Module, placement: Placement) -> bool:
    """Makes a model's layers run as the placement says; whether rows will be packed."""
    narrow = placement.precision or next(model.parameters(), torch.empty(0)).dtype
    is_fast = placement.is_on_gpu and narrow.itemsize < 4  # the kernel for packs is of half precision
    is_wanted = is_fast if placement.packed is None else placement.packed
    is_packed = is_wanted and isinstance(model, Packing) and model.pack()
    for layer in (one for part in model.modules() if isinstance(part, Layered) for one in part.layers()):
        if placement.recompute:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        if placement.compiled:
            layer.compile(dynamic=True if is_packed else None)  # packs have as many lengths as there are
    return is_packed
