"""What a source draws, and where the rows of an offline method come from. Axes: B rows, T columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import ALONE, Scene, Source, Task
from assay.parts.sources.logged import Logged
from assay.parts.sources.scales import RewardScale


def drawn(source: Source | None, scene: Scene = ALONE) -> Iterator[Experience]:
    """Yields the batches of a source's first step."""
    assert source is not None
    yield from source(scene, source.init(scene))


def foreign_rows(recipe: Recipe, task: Task, scale: RewardScale | None = None) -> float:
    """Returns how many rows of a step's batches are not transitions of the recipe's datasets, or repeat in every batch.

    Rewards are those of the datasets, times what `scale` says of them. Infinite if the recipe gathers experience or
    reads no dataset.
    """
    source: Any = recipe.source
    if recipe.rollout is not None or not isinstance(source, Logged):
        return float("inf")
    names = ("reward", "action", "terminal", "truncated", "mask")
    known, datasets = set(), [log.columns(task) for log in source.logs]
    factor = 1.0 if scale is None else scale(datasets)
    for columns in datasets:
        columns["reward"] = factor * columns["reward"]
        context = next(value for name, value in columns.items() if name.startswith("context."))
        known |= set(map(row_key, context, *(columns[name] for name in names)))
    batches = list(drawn(source, ALONE.given(task=task)))
    rows = [
        row_key(*one)
        for batch in batches
        for one in zip(next(iter(batch.context.values())), *(getattr(batch, name) for name in names), strict=True)
    ]
    return float(sum(row not in known for row in rows) + (len(set(rows)) <= len(batches[0])))


def row_key(*columns: torch.Tensor) -> bytes:
    """Returns the numbers of a row as bytes."""
    return b"".join(column.contiguous().numpy().tobytes() for column in columns)
