"""The saves that are killed: what the folder holds before, the save itself, and which states may be found after."""

import functools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.core import store

CHUNK = 1 << 12  # small, so that a case costs little
ODD_PID = 2**22 + 1  # above the largest pid of Linux, so never alive


@functools.cache
def state(tag: int) -> dict[str, Any]:
    """A tree that differs for every tag; one tensor is longer than a chunk, so that its file can be torn."""
    generator = torch.Generator().manual_seed(tag)
    big = torch.randn(CHUNK // 4 + 100, generator=generator)
    return {
        "tag": tag,
        "big": big,
        "half": big[:9].to(torch.bfloat16),
        "rng": generator.get_state(),
        "loss": [0.1, None],
    }


def put(folder: Path, step: int, tag: int) -> None:
    store.save(folder, step, state(tag), facts={"tag": tag})


def nothing(folder: Path) -> None:
    """No checkpoint, no folder."""


def one(folder: Path) -> None:
    put(folder, 1, 10)


def two(folder: Path) -> None:
    put(folder, 1, 10)
    put(folder, 2, 20)


def three(folder: Path) -> None:
    store.save(folder, 1, state(10), facts={}, keep=3)
    store.save(folder, 2, state(20), facts={}, keep=3)
    store.save(folder, 3, state(30), facts={}, keep=3)


def wreckage(folder: Path) -> None:
    """What two earlier kills left: a half written save, a half deleted one, and a step in two generations."""
    put(folder, 1, 10)
    os.rename(folder / "step-00000001", folder / "aside")
    put(folder, 1, 11)
    os.rename(folder / "step-00000001", folder / "step-00000001.1")
    os.rename(folder / "aside", folder / "step-00000001")
    for kind in ("tmp", "dead"):
        ruin = folder / f".{kind}-{ODD_PID}-0123abcd-step-00000002"
        shutil.copytree(folder / "step-00000001", ruin)
        (ruin / store.MANIFEST).unlink()


def found(folder: Path) -> int | None:
    """The tag that loads, compared bit by bit; raises where anything else does."""
    loaded = store.load(folder)
    if loaded is None:
        return None
    tag: int = loaded.tree["tag"]
    different = store.difference(loaded.tree, state(tag))
    assert not different, f"{loaded.path} differs from what was saved at {different}"
    return tag


def put_text(folder: Path, step: int, tag: int) -> None:
    store.write_json(folder / "config.json", {"tag": tag, "long": "x" * 2 * CHUNK})


def one_text(folder: Path) -> None:
    put_text(folder, 0, 10)


def found_text(folder: Path) -> int | None:
    """The tag in the file, which is whole."""
    path = folder / "config.json"
    if not path.exists():
        return None
    value: dict[str, Any] = json.loads(path.read_text())
    assert len(value["long"]) == 2 * CHUNK
    return int(value["tag"])


@dataclass(frozen=True)
class Scenario:
    """A save of `tag` at `step`; afterwards `previous` or `tag` may load, once it has returned only `tag`."""

    prepare: Callable[[Path], None]
    step: int
    tag: int
    previous: int | None
    put: Callable[[Path, int, int], None] = put
    found: Callable[[Path], int | None] = found

    def act(self, folder: Path) -> None:
        self.put(folder, self.step, self.tag)


SCENARIOS = {
    "first save": Scenario(nothing, step=1, tag=10, previous=None),
    "next save": Scenario(one, step=2, tag=20, previous=10),
    "only step saved again": Scenario(one, step=1, tag=11, previous=10),
    "newest step saved again": Scenario(two, step=2, tag=21, previous=20),
    "save that prunes": Scenario(two, step=3, tag=30, previous=20),
    "save after two kills": Scenario(wreckage, step=1, tag=12, previous=11),
    "save after going back": Scenario(three, step=1, tag=11, previous=30),
    "first text": Scenario(nothing, step=0, tag=10, previous=None, put=put_text, found=found_text),
    "text replaced": Scenario(one_text, step=0, tag=11, previous=10, put=put_text, found=found_text),
}
