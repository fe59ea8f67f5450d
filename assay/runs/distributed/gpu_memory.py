"""Weights in the memory of one GPU: the learner writes a version into a buffer, and samplers on the same GPU open it by
its handle (CUDA IPC). Handles travel as JSON; no file and no pickle is between the two.

    buffer = [version begun, version done] as int64, then the tensors, each at a multiple of 16 bytes

Tensors are flat bytes.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.trees import decode, encoded
from assay.runs.distributed.weights import Weights, WeightsMissing, placed

HEAD = 16
"""Bytes before the tensors, and what their places are multiples of, so that every dtype can be read in place."""


class Memory(ABC):
    """Memory that another process opens by a handle.

    Laws: what is opened is the same memory, until the process that has made it drops it.
    """

    @abstractmethod
    def new(self, size: int) -> Tensor:
        """Returns `size` bytes."""

    @abstractmethod
    def handle(self, memory: Tensor) -> list[bytes | int]:
        """Returns what another process opens the memory with."""

    @abstractmethod
    def opened(self, handle: Sequence[Any]) -> Tensor:
        """Returns the memory of a handle."""

    @abstractmethod
    def wait(self) -> None:
        """Waits until everything asked of the memory is done."""


@dataclass(frozen=True)
class CudaMemory(Memory):
    """Memory of a GPU."""

    device: str = "cuda"

    def new(self, size: int) -> Tensor:
        """Allocates on the GPU."""
        return torch.zeros(size, dtype=torch.uint8, device=self.device)

    def handle(self, memory: Tensor) -> list[bytes | int]:
        found = memory.untyped_storage()._share_cuda_()
        # torch would keep the memory until each reader has given it back, and one that is killed never does. The
        # learner holds it for as long as there are samplers, so nothing has to be counted.
        torch.UntypedStorage._release_ipc_counter(*found[4:6], device=self.device)
        return list(found)

    def opened(self, handle: Sequence[Any]) -> Tensor:
        """Opens the handle on this process's GPU of the same number."""
        torch.cuda.init()
        try:
            storage = torch.UntypedStorage._new_shared_cuda(*handle)
        except RuntimeError as error:
            words = str(error).splitlines()[0]
            raise AssayError(
                f"the weights on the learner's GPU cannot be opened ({words}). Let all processes see the same GPUs, or "
                "remove --ipc."
            ) from error
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)

    def wait(self) -> None:
        """Waits for this thread's stream; the whole device may not be waited for while another records a graph."""
        torch.cuda.current_stream(self.device).synchronize()


@dataclass(eq=False)
class SharedWeights(Weights):
    """Weights in `keep` buffers that samplers read in place; version v is in buffer v mod keep.

    A reader copies the buffer and looks at its two counters before and after. The learner sets the first counter before
    it writes and the second one afterwards, so a copy of one whole version has it in all four.
    """

    memory: Memory
    keep: int = 1
    buffers: dict[int, tuple[Tensor, list[Any]]] = field(default_factory=dict)
    """The learner's own with their handles, by place."""
    messages: dict[int, str] = field(default_factory=dict)
    """What `told` returns, by version."""
    opened: dict[str, Tensor] = field(default_factory=dict)
    """A sampler's, by handle: opening takes milliseconds."""

    def publish(self, version: int, tree: State) -> None:
        """Writes the tensors into their buffer. AssayError if they no longer fit."""
        if version in self.messages:
            return
        ready, place = encoded(tree), version % self.keep
        where, size = layout(ready.tensors)
        if place not in self.buffers:
            buffer = self.memory.new(size)
            self.buffers[place] = buffer, as_json(self.memory.handle(buffer))
        buffer, handle = self.buffers[place]
        if buffer.numel() < size:
            raise AssayError(f"the weights have grown from {buffer.numel():,} to {size:,} bytes. Remove --ipc.")
        head = buffer[:HEAD].view(torch.int64)
        head[0] = version
        for name, tensor in ready.tensors.items():
            own = tensor.contiguous().reshape(-1).view(torch.uint8)
            buffer[where[name][2] : where[name][2] + own.numel()].copy_(own)
        self.memory.wait()
        head[1] = version
        self.memory.wait()
        self.messages = {old: told for old, told in self.messages.items() if old > version - self.keep}
        facts = {"memory": handle, "size": size, "tensors": where, "tree": json.loads(ready.state)}
        self.messages[version] = json.dumps(facts)

    def told(self, version: int) -> str:
        """Returns the handle of a version's buffer, and what is where in it."""
        if version not in self.messages:
            raise WeightsMissing(f"version {version} of the weights is not there. Publish it first.")
        return self.messages[version]

    def fetch(self, version: int, told: str = "") -> State:
        """Returns a copy of a version. WeightsMissing if other weights are, or came, in its place."""
        facts = json.loads(told or self.told(version))
        key = json.dumps(facts["memory"])
        if key not in self.opened:
            self.opened[key] = self.memory.opened(from_json(facts["memory"]))
        buffer = self.opened[key]
        head = buffer[:HEAD].view(torch.int64)
        before = head.tolist()
        copy = buffer[: facts["size"]].clone()
        self.memory.wait()
        if odd := {*before, *head.tolist()} - {version}:
            raise WeightsMissing(
                f"version {version} of the weights is not there, {max(odd)} is in its place: this sampler was too "
                "late. Resume."
            )
        tensors = {name: placed(copy, *where) for name, where in facts["tensors"].items()}
        found: State = decode(facts["tree"], tensors)
        return found


def layout(tensors: Mapping[str, Tensor]) -> tuple[dict[str, tuple[str, list[int], int]], int]:
    """Returns dtype, shape and place of each tensor, and the bytes of all."""
    where, end = {}, HEAD
    for name, tensor in tensors.items():
        where[name] = (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), end)
        end += -(-tensor.nbytes // HEAD) * HEAD
    return where, end


def as_json(handle: Sequence[bytes | int]) -> list[Any]:
    """Returns a handle with its bytes as base64, in a list of one."""
    return [[base64.b64encode(one).decode()] if isinstance(one, bytes) else one for one in handle]


def from_json(handle: Sequence[Any]) -> list[bytes | int]:
    """Returns the handle that `as_json` has written."""
    return [base64.b64decode(one[0]) if isinstance(one, list) else one for one in handle]
