"""Training on demonstrations and preference pairs that the task provides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import DemonstratedTask, PairedTask, Scene, Source, SupervisedTask
from assay.parts.curricula.in_order import next_starts
from assay.parts.sources.fresh import FreshDecisions
from assay.parts.sources.logged import Logged, own_dataset


@dataclass(frozen=True)
class Demonstrations(Source):
    """Yields `batch` demonstrations of the task per step, each start once, in the task's order; of a conversation every
    reply that its row trains.

    Degenerate: a file with fewer rows than `batch` is repeated within a batch, each time as new starts. Source: by
    definition. Assumes demonstrations of every start.
    """

    batch: int = 64

    def init(self, scene: Scene) -> State:
        """Returns ordinal 0; raises AssayError if the task has no demonstrations."""
        task = scene.task
        if not isinstance(task, DemonstratedTask):
            raise AssayError(f"task '{task.name}' has no demonstrations. Use a task or a file that has some")
        return {"next": 0}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        task = scene.task
        assert isinstance(task, DemonstratedTask)
        shown = task.supervise if isinstance(task, SupervisedTask) else task.demonstrate
        yield shown(next_starts(scene, state, self.batch), 0)


@dataclass(frozen=True)
class DemonstratedDecisions(Source):
    """Yields the decisions of `episodes` new expert episodes per step, shuffled into `minibatches` batches.

    If the task has a dataset of its own, yields as many batches of its rows instead (see `Logged`). Degenerate: if the
    episodes have fewer decisions than `minibatches`, each decision is a batch. Source: Pomerleau 1989. Assumes an
    expert.
    """

    episodes: int = 8
    minibatches: int = 16

    def init(self, scene: Scene) -> State:
        if own_dataset(scene.task) is not None:
            return Logged(updates=self.minibatches).init(scene)
        return Demonstrations().init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        if own_dataset(scene.task) is not None:
            yield from Logged(updates=self.minibatches)(scene, state)
            return
        shown = next(Demonstrations(self.episodes)(scene, state))
        yield from FreshDecisions(epochs=1, minibatches=self.minibatches)(scene.given(fresh=shown), {})


@dataclass(frozen=True)
class Pairs(Source):
    """Yields `batch` preference pairs of the task per step, each once, in the task's order.

    Degenerate: a file with fewer pairs than `batch` is repeated within a batch, each time as new groups. Source:
    arXiv:2305.18290. Assumes a file of pairs.
    """

    batch: int = 32
    writes: ClassVar[Mapping[str, str]] = {"chosen": "B: +1 for the better row of a pair, -1 for the other"}

    def init(self, scene: Scene) -> State:
        """Returns ordinal 0; raises AssayError if the task has no pairs."""
        task = scene.task
        if not isinstance(task, PairedTask):
            raise AssayError(
                f"task '{task.name}' has no preference pairs. Use a .jsonl file with prompt, chosen, rejected"
            )
        return {"next": 0}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        task = scene.task
        assert isinstance(task, PairedTask)
        yield task.pairs(next_starts(scene, state, self.batch), 0)
