"""How weights reach the processes that sample: published under version numbers, fetched by number.

Version v are the weights after v steps of training. What is published is a tree (see `assay.core.trees`).
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from assay.core.digests import Digest, digest_of
from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.trees import decode, encoded, tensor_blocks

TREE = "$tree"
"""The entry of a file that holds the tree as JSON, in which names stand for its tensors."""


class WeightsMissing(AssayError):
    """A version of the weights could not be fetched in time."""


class Weights(ABC):
    """Versions of a run's weights.

    Laws: what is fetched is what was published under this number, bit by bit, until the learner changes it or newer
    versions take its place; publishing again changes nothing.
    """

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
        """Returns the tensors."""
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
        """Returns the tree of a file with the digest of its name."""
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
    if digest_of(path) != digest:
        raise ValueError(f"{path} does not have the digest {digest[:12]}")
    with safe_open(path, framework="pt", device=device) as stored:
        return decoded({name: stored.get_tensor(name) for name in stored.keys()})  # noqa: SIM118


def version_of(path: Path) -> int:
    """Returns the version in a file's name."""
    return int(path.stem.partition("-")[0])


def decoded(tensors: Mapping[str, torch.Tensor]) -> State:
    """Returns the tree of a file's tensors."""
    tree: State = decode(json.loads(tensors[TREE].cpu().numpy().tobytes()), tensors)
    return tree
