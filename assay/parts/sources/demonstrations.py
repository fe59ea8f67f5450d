"""Training on what somebody else did: demonstrations and pairs that the task gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import DemonstratedTask, PairedTask, Scene, Source
from assay.parts.sources.fresh import FreshDecisions


@dataclass(frozen=True)
class Demonstrations(Source):
    """`batch` demonstrations of the task a step, each start once, in order."""

    batch: int = 64

    def init(self, scene: Scene) -> State:
        """The next ordinal."""
        task = scene.task
        if not isinstance(task, DemonstratedTask):
            raise AssayError(f"task '{task.name}' gives no demonstrations; name a task that does, or a file of them")
        return {"next": 0}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """The next demonstrations as one batch."""
        task = scene.task
        assert isinstance(task, DemonstratedTask)
        first = state["next"]
        state["next"] = first + self.batch
        yield task.demonstrate(np.arange(first, first + self.batch, dtype=np.int64), 0)


@dataclass(frozen=True)
class DemonstratedDecisions(Source):
    """Expert episodes taken apart: `episodes` new ones a step, their decisions shuffled into `minibatches` batches."""

    episodes: int = 8
    minibatches: int = 16

    def init(self, scene: Scene) -> State:
        """The next ordinal."""
        return Demonstrations().init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """The next episodes' decisions, each once."""
        shown = next(Demonstrations(self.episodes)(scene, state))
        yield from FreshDecisions(epochs=1, minibatches=self.minibatches)(scene.given(fresh=shown), {})


@dataclass(frozen=True)
class Pairs(Source):
    """`batch` preference pairs of the task a step, each once, in order."""

    batch: int = 32
    writes: ClassVar[tuple[str, ...]] = ("chosen",)

    def init(self, scene: Scene) -> State:
        """The next ordinal."""
        task = scene.task
        if not isinstance(task, PairedTask):
            raise AssayError(
                f"task '{task.name}' gives no preference pairs; name a .jsonl file with prompt, chosen, rejected"
            )
        return {"next": 0}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """The next pairs as one batch."""
        task = scene.task
        assert isinstance(task, PairedTask)
        first = state["next"]
        state["next"] = first + self.batch
        yield task.pairs(np.arange(first, first + self.batch, dtype=np.int64), 0)
