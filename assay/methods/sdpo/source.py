"""Teaching a model to read what stands before the prompt. Axes: B rows, T columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay.core.errors import AssayError
from assay.core.record import Experience, State, concatenate
from assay.core.slots import DemonstratedTask, Scene, Source
from assay.core.spaces import Vocabulary
from assay.methods.sdpo import contexts
from assay.parts.sources.demonstrations import Demonstrations


@dataclass(frozen=True)
class ShownTwice(Source):
    """`batch` demonstrations a step, each once, in order; all but the first `plain` stand after a copy of themselves.

    Only the second time is learnt, so a model learns to use an answer that it is shown. `plain` ones keep it used to a
    bare prompt. Token tasks.
    """

    batch: int = 64
    plain: int = 16

    def init(self, scene: Scene) -> State:
        """The next ordinal."""
        task = scene.task
        if not isinstance(task.spec.action, Vocabulary):
            raise AssayError(f"ShownTwice shows tokens before a prompt, and '{task.name}' has none; use Demonstrations")
        return Demonstrations().init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """The next demonstrations as one batch."""
        task = scene.task
        assert isinstance(task, DemonstratedTask)
        first, state["next"] = state["next"], state["next"] + self.batch
        shown = task.demonstrate(np.arange(first, first + self.batch, dtype=np.int64), 0)
        bare, rest = shown.rows(slice(0, self.plain)), shown.rows(slice(self.plain, None))
        twice, _ = contexts.with_example(rest, rest) if len(rest) else (rest, None)
        yield concatenate([part for part in (bare, twice) if len(part)])
