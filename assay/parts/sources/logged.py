"""An offline dataset: generated or read from a file. Axes: B, T = 2 columns, N rows of F numbers, S batches."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import COLUMNS, Draw, Experience, Origin, State
from assay.core.slots import CostlyTask, LoggedTask, Scene, ScriptedTask, Source, Task
from assay.ops import random
from assay.parts.sources.conditions import Condition, with_success
from assay.parts.sources.recordings import Described, Layout, NoisyExpert, Recording
from assay.parts.sources.replay import from_columns, transitions
from assay.parts.sources.scales import RewardScale, rescaled

TOGETHER = 8
"""Batches that are gathered at once."""


@dataclass(frozen=True)
class Log(Described):
    """Describes `episodes` episodes of the task's expert with a share `noise` of random actions, from start `first`
    on. `reckless` uses the expert that ignores costs. Degenerate: on tasks without costs it is the same expert.

    Source: arXiv:2004.07219. Assumes a scripted expert.
    """

    episodes: int = 50
    noise: float = 1.0
    first: int = 0
    reward_scale: float = 1.0
    origin: int = int(Origin.DATASET)
    reckless: bool = False

    def columns(self, task: Task) -> dict[str, Tensor]:
        if not isinstance(task, ScriptedTask) or task.expert is None:
            raise AssayError(f"task '{task.name}' has no scripted expert. Name an offline dataset: --data FILE")
        starts = np.arange(self.first, self.first + self.episodes, dtype=np.int64)
        careless = task.reckless if self.reckless and isinstance(task, CostlyTask) else None
        actor, samples = NoisyExpert(careless or task.expert, task.spec, self.noise), np.zeros(self.episodes, np.int64)
        return self.laid_out(task.judge(task.play(actor, starts, samples, Draw(7), split=0, greedy=False), 0))

    def laid_out(self, played: Experience) -> dict[str, Tensor]:
        """Returns the transitions of episodes, with rewards scaled."""
        return transitions(replace(played, reward=self.reward_scale * played.reward))


def columns_of(log: Described | Recording, task: Task, draw: Draw) -> dict[str, Tensor]:
    """Returns the data that a description stands for; where the task has a dataset of its own, the one of this draw.

    A file that a user names is neither, and stays.
    """
    own = own_dataset(task)
    return log.laid_out(own(draw)) if own is not None and isinstance(log, Layout) else log.columns(task)


def own_dataset(task: Task) -> Callable[[Draw], Experience] | None:
    """Returns the function that makes the task's own dataset of a draw; None if it has none."""
    return task.logged if isinstance(task, LoggedTask) else None


class Contents:
    """Offline datasets in memory. A checkpoint stores only the hash of their contents, since they can be rebuilt.

    Source: by definition. Assumes that they fit into memory. Degenerate: no dataset has an empty hash.
    """

    def __init__(self, logs: Sequence[Described | Recording], task: Task, draw: Draw = Draw(0)) -> None:
        self.columns, digest = tuple(columns_of(log, task, draw) for log in logs), hashlib.sha256()
        for each in self.columns:
            for name in sorted(each):
                digest.update(name.encode() + each[name].contiguous().numpy().tobytes())
        self.hash = digest.hexdigest()[:16]
        self.columns = tuple(with_success(each, task) for each in self.columns)
        known = [set(each) for each in self.columns]
        if odd := {name for names in known for name in names ^ known[0]}:
            raise AssayError(f"some datasets lack the columns {', '.join(sorted(odd))}. Use datasets of one kind")

    def snapshot(self) -> State:
        """Returns the hash."""
        return {"hash": self.hash}

    def restore(self, state: State) -> None:
        """Raises AssayError if the contents are not those that the run started with."""
        if (known := state["hash"]) != self.hash:
            what = f"the offline dataset has the hash {self.hash}, but the run started with {known}"
            raise AssayError(f"{what}. Restore the data, or start a new run")


@dataclass(frozen=True)
class Logged(Source):
    """Yields `updates` batches per step, each of `batch` transitions drawn uniformly from every dataset.

    The column `source` says which dataset a row comes from (its `origin`). Resuming a run with other contents raises
    AssayError. Degenerate: a dataset of one transition gives it `batch` times. Source: arXiv:2005.01643. Assumes that
    all transitions are equally useful.
    """

    logs: tuple[Recording, ...] = (Log(),)
    batch: int = 128
    updates: int = 10
    condition: Condition | None = None
    scale: RewardScale | None = None

    def init(self, scene: Scene) -> State:
        """Returns the datasets, rewards in units of `scale`; raises AssayError if one does not meet the condition."""
        contents = Contents(self.logs, scene.task, scene.draw)
        if self.condition is not None:
            self.condition(scene.task, contents.columns)
        contents.columns = tuple(Packed(columns) for columns in rescaled(contents.columns, self.scale))
        return {"contents": contents}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        logs = state["contents"].columns
        # All updates of a step in one hash: of a batch alone it would take as long as the batch.
        drawn = [
            torch.from_numpy(random.integers_of(scene.draw.at(4), (self.updates, place, self.batch), len(log["mask"])))
            for place, log in enumerate(logs)
        ]
        for first in range(0, self.updates, TOGETHER):
            yield from unstacked(self.rows(logs, [index[first : first + TOGETHER] for index in drawn]))

    def tables(self, state: State) -> tuple[Sequence[dict[str, Tensor]], str]:
        """Returns the datasets' columns, and the hash of their contents."""
        return state["contents"].columns, state["contents"].hash

    def rows(self, logs: Sequence[dict[str, Tensor]], index: Sequence[Tensor]) -> Experience:
        """Returns the rows at these indices of each dataset as one batch; `index` is [batch], or [S, batch] for S
        batches.
        """
        axis, device = index[0].dim() - 1, index[0].device
        parts = [gathered(columns, places) for columns, places in zip(logs, index, strict=True)]
        sources = [torch.full(i.shape, log.origin, device=device) for log, i in zip(self.logs, index, strict=True)]
        if len(parts) == 1:
            return from_columns(parts[0]).with_columns(source=sources[0])
        joined = {name: torch.cat([part[name] for part in parts], axis) for name in parts[0]}
        return from_columns(joined).with_columns(source=torch.cat(sources, axis))


def gathered(columns: dict[str, Tensor], places: Tensor) -> dict[str, Tensor]:
    """Returns the rows of all columns at indices of any shape."""
    if isinstance(columns, Packed):
        return columns.gathered(places)
    return {name: at(column, places) for name, column in columns.items()}


def at(column: Tensor, places: Tensor) -> Tensor:
    """Returns the rows of a column at indices of any shape."""
    return column.index_select(0, places.flatten()).view(*places.shape, *column.shape[1:])


class Packed(dict[str, Tensor]):
    """Columns [N, ...] by name, which are views of one block [N, F] for each dtype.

    A random row of a large dataset is far from the others in memory: with a block it costs one access instead of one
    for each column. Degenerate: no columns have no blocks.
    """

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        super().__init__(columns)  # in their order
        self.blocks: list[tuple[Tensor, list[int], list[tuple[str, torch.Size]]]] = []
        for dtype in dict.fromkeys(column.dtype for column in columns.values()):
            mine = {name: column for name, column in columns.items() if column.dtype == dtype}
            shapes = [(name, column.shape[1:]) for name, column in mine.items()]
            sizes = [math.prod(shape) for _, shape in shapes]
            block = torch.cat([column.reshape(len(column), -1) for column in mine.values()], 1)
            self.blocks.append((block, sizes, shapes))
            for (name, shape), part in zip(shapes, block.split(sizes, 1), strict=True):
                self[name] = part.view(len(part), *shape)

    def gathered(self, index: Tensor) -> dict[str, Tensor]:
        """Returns the rows at indices of any shape, of every column."""
        found: dict[str, Tensor] = {}
        for block, sizes, shapes in self.blocks:
            parts = torch.split_with_sizes(block.index_select(0, index.reshape(-1)), sizes, 1)
            for (name, shape), part in zip(shapes, parts, strict=True):
                found[name] = part.view(index.shape + shape)
        return {name: found[name] for name in self if name in found}


def unstacked(batches: Experience) -> Iterator[Experience]:
    """Yields the batches of which a record [S, B, ...] is a stack; they share its memory."""
    parts: dict[str, list[Any]] = {}
    for name in COLUMNS:
        value = batches.__dict__[name]
        if isinstance(value, Tensor):
            parts[name] = list(value.unbind(0))
        elif value is not None:
            each = {key: column.unbind(0) for key, column in value.items()}
            parts[name] = [{key: own[place] for key, own in each.items()} for place in range(len(batches))]
    for place in range(len(batches)):
        yield batches.with_columns(**{name: own[place] for name, own in parts.items()})
