"""How weights reach the processes that sample: published under version numbers, fetched by number.

Version v are the weights after v steps of training. What is published is a tree (see `assay.core.trees`).

Tensors are flat bytes, or weights with the shapes of parameters.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from assay.core import digests
from assay.core.digests import Digest, digest_of
from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.trees import DTYPES, decode, encoded, tensor_blocks

TREE = "$tree"
"""The entry of a file that holds the tree as JSON, in which names stand for its tensors."""


READERS = min(16, os.cpu_count() or 1)
"""Threads that read a file for a GPU, each with a part in pinned memory: at lag 0 sampling waits for them."""


class WeightsMissing(AssayError):
    """A version of the weights could not be fetched in time."""


class Weights(ABC):
    """Versions of a run's weights.

    Laws: what is fetched is what was published under this number, bit by bit, until the learner changes it or newer
    versions take its place; publishing again changes nothing.
    """

    is_read_ahead: ClassVar[bool] = False
    """Whether fetching takes so long that a sampler begins with it while it samples with an older version."""

    @abstractmethod
    def publish(self, version: int, tree: State) -> None:
        """Makes the weights of a version available."""

    @abstractmethod
    def fetch(self, version: int, told: str = "") -> State:
        """Returns the weights of a version. WeightsMissing if they are not there."""

    def told(self, version: int) -> str:
        """Returns what another process passes to `fetch` beside the number, as JSON; empty if the number is enough."""
        return ""


@dataclass(eq=False)
class SameMemory(Weights):
    """Weights for samplers in the learner's process, which use its own tensors: the newest version alone is there."""

    newest: int = -1
    tree: State = field(default_factory=dict)

    def publish(self, version: int, tree: State) -> None:
        """Keeps the tensors themselves."""
        self.newest, self.tree = version, tree

    def fetch(self, version: int, told: str = "") -> State:
        if version != self.newest:
            raise WeightsMissing(f"version {version} of the weights is not there, {self.newest} is. Publish it first.")
        return self.tree


@dataclass(frozen=True)
class WeightFiles(Weights):
    """Weights as safetensors files in a folder that all processes see, VERSION-SHA256.safetensors; the newest `keep`.
    Digests are those of `assay.core.digests`: by parts where a file is long.

    A file whose digest is not that of its name is torn (a shared folder shows it before it is whole) and is read again,
    for at most `patience` seconds. What is fetched is on `device`.
    """

    is_read_ahead: ClassVar[bool] = True
    folder: Path
    keep: int = 1
    patience: float = 30.0
    device: str = "cpu"

    def publish(self, version: int, tree: State) -> None:
        """Writes the file under another name, renames it, and removes old versions."""
        ready = encoded(tree)
        tensors = {**ready.tensors, TREE: torch.frombuffer(bytearray(ready.state), dtype=torch.uint8)}
        part = self.folder / f".{version}-{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as stream, Digest() as digest:
                for block in tensor_blocks(tensors):
                    digest.update(block)
                    stream.write(block)
                found = digest.entry()["sha256"]
            part.rename(self.folder / f"{version}-{found}.safetensors")
        except OSError as error:
            part.unlink(missing_ok=True)
            raise AssayError(
                f"version {version} of the weights cannot be written to {self.folder} ({error}). Free "
                f"{ready.size * self.keep:,} bytes of disk, then resume."
            ) from error
        there = sorted(self.folder.glob("*-*.safetensors"), key=version_of)
        for path in there:
            if version_of(path) <= version_of(there[-1]) - self.keep:
                path.unlink(missing_ok=True)

    def fetch(self, version: int, told: str = "") -> State:
        until, wrong = time.monotonic() + self.patience, "is not there"
        while True:
            for path in self.folder.glob(f"{version}-*.safetensors"):
                with suppress(OSError, SafetensorError, ValueError):  # removed, or torn, at this moment
                    return tree_of(path, path.stem.partition("-")[2], self.device)
                wrong = "does not have the digest of its name"
            if time.monotonic() > until:
                raise WeightsMissing(
                    f"version {version} of the weights {wrong} in {self.folder} after {self.patience:g} s. Look at the "
                    "disk, then resume."
                )
            time.sleep(0.05)

    def path(self, version: int) -> Path:
        """Returns the file of a version. WeightsMissing if it is not there."""
        for found in self.folder.glob(f"{version}-*.safetensors"):
            return found
        raise WeightsMissing(f"version {version} of the weights is not in {self.folder}. Look at the disk; resume.")


def tree_of(path: Path, digest: str, device: str = "cpu") -> State:
    """Returns the tree of a file; ValueError if its sha256 is not `digest`, SafetensorError if it is another file.
    On the CPU its tensors are the file's own pages, which stay when it is removed.
    """
    is_here = torch.device(device).type == "cpu"
    content, found = (None, digest_of(path)) if is_here else copied(path, device)
    if found != digest:
        raise ValueError(f"{path} does not have the digest {digest[:12]}")
    if content is not None:
        return decode_state(tensors_of(content))
    with safe_open(path, framework="pt") as stored:
        return decode_state({name: stored.get_tensor(name) for name in stored.keys()})  # noqa: SIM118


def copied(path: Path, device: str) -> tuple[Tensor, str]:
    """Returns the bytes of a file on a device, and its digest. Several threads read a part each into memory that the
    device copies by itself, on a stream beside that of the computations, while the part is hashed.
    """
    is_gpu = torch.device(device).type == "cuda"
    size, part = path.stat().st_size, digests.PART
    there = torch.empty(size, dtype=torch.uint8, device=device)
    side = torch.cuda.Stream(device) if is_gpu else None
    if side is not None:  # the memory may have been that of a kernel which has not ended
        side.wait_stream(torch.cuda.current_stream(device))

    def read(start: int) -> bytes:
        own = torch.empty(min(part, size - start), dtype=torch.uint8, pin_memory=is_gpu)  # kept by torch for the next
        many = os.preadv(stream.fileno(), [own.numpy()], start) if len(own) else 0  # type: ignore[list-item]
        with nullcontext() if side is None else torch.cuda.stream(side):
            there[start : start + many].copy_(own[:many], non_blocking=True)
        return hashlib.sha256(own[:many].numpy()).digest()  # type: ignore[arg-type]

    with path.open("rb") as stream, ThreadPoolExecutor(READERS) as pool:
        parts = list(pool.map(read, range(0, max(1, size), part)))
    if side is not None:
        side.synchronize()
    return there, digests.join_digests(parts)


def tensors_of(content: Tensor) -> dict[str, Tensor]:
    """Returns the tensors of a whole safetensors file as views of its bytes."""
    begin = 8 + int(content[:8].view(torch.int64))
    header = json.loads(content[8:begin].cpu().numpy().tobytes())
    kinds = {short: name for name, short in DTYPES.items()}
    return {
        name: placed(content, kinds[one["dtype"]], one["shape"], begin + one["data_offsets"][0])
        for name, one in header.items()
    }


def placed(content: Tensor, dtype: str, shape: Sequence[int], begin: int) -> Tensor:
    """Returns the tensor that begins at a byte of a buffer, as a view of it."""
    kind: torch.dtype = getattr(torch, dtype)
    size = torch.Size(shape).numel() * kind.itemsize
    return content[begin : begin + size].view(kind).view(shape)


def version_of(path: Path) -> int:
    """Returns the version in a file's name."""
    return int(path.stem.partition("-")[0])


def decode_state(tensors: Mapping[str, Tensor]) -> State:
    """Returns the tree of a file's tensors."""
    tree: State = decode(json.loads(tensors[TREE].cpu().numpy().tobytes()), tensors)
    return tree
