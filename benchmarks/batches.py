"""Milliseconds of a batch of 256 transitions, and of 256 windows of 20 decisions, of a dataset of a million.

17 observed numbers, 6 actions, episodes of 1,000; one thread. cpu time beside wall time: other programs on the machine
lengthen the latter.

    OMP_NUM_THREADS=1 python -m benchmarks.batches
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from assay.core.record import Draw
from assay.core.slots import Scene
from assay.parts import Logged, Windows
from assay.parts.sources.logged import Packed
from assay.parts.sources.windows import places_of

ROWS, LENGTH, BATCH, UPDATES = 1_000_000, 1_000, 256, 40


class Tables:
    """What a source keeps: columns in memory."""

    def __init__(self, columns: Packed) -> None:
        self.columns = (columns,)


def transitions(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Random decisions in the layout of an offline dataset; each observation follows the one before."""
    seen = torch.randn(rows + 1, 17, generator=torch.Generator().manual_seed(0))
    none = torch.zeros(rows, 2, dtype=torch.bool)
    truncated, mask = none.clone(), none.clone()
    truncated[length - 1 :: length, 0], mask[:, 0] = True, True
    return {
        "action": torch.rand(rows, 2, 6), "mask": mask, "logp": torch.zeros(rows, 2), "reward": torch.rand(rows, 2),
        "terminal": none, "truncated": truncated, "context.observation": torch.stack((seen[:-1], seen[1:]), 1),
    }  # fmt: skip


def timed(source: Logged, columns: Packed, repeats: int) -> dict[str, Any]:
    """Median milliseconds of a batch over the repeats, the first left out."""
    cpu, wall = [], []
    for step in range(repeats + 1):
        begin, here = time.process_time(), time.perf_counter()
        for _ in source(Scene(draw=Draw(0, (step,))), {"contents": Tables(columns)}):
            pass
        cpu.append((time.process_time() - begin) / source.updates * 1e3)
        wall.append((time.perf_counter() - here) / source.updates * 1e3)
    return {"cpu_ms": float(np.median(cpu[1:])), "wall_ms": float(np.median(wall[1:])), "least_ms": min(wall[1:])}


def measure(rows: int, length: int, repeats: int) -> dict[str, Any]:
    """The numbers of both kinds of batches."""
    columns = transitions(rows, length)
    found = {"transitions": timed(Logged(batch=BATCH, updates=UPDATES), Packed(columns), repeats)}
    windows = Windows(batch=BATCH, updates=UPDATES, length=20)
    return found | {"windows of 20": timed(windows, places_of(columns), repeats)}


def main(words: Sequence[str] | None = None) -> None:
    """Prints the numbers as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batches", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="decisions of the dataset")
    parser.add_argument("--repeats", type=int, default=9, help="how often each is timed")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    found = measure(options.rows, min(LENGTH, options.rows), options.repeats)
    print(json.dumps({"rows": options.rows, "batch": BATCH} | found, indent=1))


if __name__ == "__main__":
    main()
