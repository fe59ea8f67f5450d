"""Device, precision and micro-batches of a recipe's models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import DeviceTask, History, Layered, Packing, Recalling, RememberingTask, Task
from assay.engine.memory import parts_below

AT_ONCE = 16_384
"""Default of tokens per micro-batch on a GPU."""


@dataclass(frozen=True)
class Placement:
    """Where and how a recipe runs; changes speed, never the maths.

    `micro_batch`: rows per micro-batch (0: all). `precision`: bfloat16 trains the models under autocast, parameters
    and optimizer stay float32; sampling has the precision of the weights, and the log-probabilities that ratios
    compare with are computed again as training computes them. `tokens`: maximum tokens per micro-batch, padding
    included (0: no limit; on a GPU 16,384 unless `micro_batch` is set); rows are then sorted by length, so that few
    columns are padding. `recompute`: gradient checkpointing of the layers. `compiled`: torch.compile the layers.
    `packed`: rows are concatenated without padding if the model supports it, and a group's shared prefix is computed
    once; `tokens` then counts packed tokens (None: on a GPU in half precision).

    `captured`: on a GPU, gradients of vectors and tables are computed by CUDA graphs.

    `deterministic`: only kernels that give the same bits when they are run again (see `machine.repeatable`).

    `shards`: a batch is sampled and learned in so many parts, a power of two; each part adds up in its own order, and
    parts are added as a fixed binary tree. It decides rounding, so it belongs to a run's settings. `ranks`: processes
    that share the parts; it divides `shards` and changes no bit. `sharded`: layers of trained models are split among
    the ranks while gradients are computed.
    """

    device: str = "cpu"
    micro_batch: int = 0
    precision: torch.dtype | None = None
    tokens: int = 0
    recompute: bool = False
    compiled: bool = False
    packed: bool | None = None
    shards: int = 1
    ranks: int = 1
    sharded: bool = False
    deterministic: bool = False
    captured: bool = True

    @property
    def is_on_gpu(self) -> bool:
        """Whether the models are on a device other than the CPU."""
        return torch.device(self.device).type != "cpu"

    @property
    def at_once(self) -> int:
        """Maximum tokens per micro-batch; 0 for no limit."""
        return self.tokens or (AT_ONCE if self.is_on_gpu and not self.micro_batch else 0)


def task_on(task: Task, placement: Placement) -> Task:
    """Returns the task with its simulations where the policy is, if they can be there."""
    is_moved = placement.is_on_gpu and isinstance(task, DeviceTask) and task.is_portable
    return task.on(placement.device) if is_moved and isinstance(task, DeviceTask) else task


def history_of(recipe: Recipe) -> History:
    """Returns the history that the recipe's own models read."""
    wanted = History()
    for _, part in parts_below(replace(recipe, before=()), "recipe"):
        if isinstance(part, Recalling):
            wanted = wanted | part.reads_history
    return wanted


def with_history(recipe: Recipe, task: Task) -> Task:
    """Returns the task with the history that the recipe's own models read; AssayError if it cannot show the past."""
    wanted = history_of(recipe)
    if wanted == History():
        return task
    if not isinstance(task, RememberingTask):
        what = f"recipe '{recipe.name}' reads the last {wanted.steps} decisions, and task '{task.name}' shows no past"
        raise AssayError(f"{what}. Use a control task")
    return task.remembering(wanted)


def arrange(model: nn.Module, placement: Placement) -> bool:
    """Configures a model's layers as the placement says; returns whether rows will be packed."""
    narrow = placement.precision or next(model.parameters(), torch.empty(0)).dtype
    is_fast = placement.is_on_gpu and narrow.itemsize < 4  # the kernel for packed rows needs half precision
    is_wanted = is_fast if placement.packed is None else placement.packed
    is_packed = is_wanted and isinstance(model, Packing) and model.pack()
    for layer in (one for part in model.modules() if isinstance(part, Layered) for one in part.layers()):
        if placement.recompute:  # of this instance: target networks have no backward pass to save memory for
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        if placement.compiled:
            layer.compile(dynamic=True if is_packed else None)  # packed rows have many different lengths
    return is_packed
