"""Training to use an answer that stands in the prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay.core.record import Experience, State, concatenate
from assay.core.slots import DemonstratedTask, Scene, Source
from assay.parts.credit.self_teacher import SHOWN, check_shown, need_prompts, told_prompts
from assay.parts.sources.demonstrations import Demonstrations


@dataclass(frozen=True)
class ShownTwice(Source):
    """Yields `batch` demonstrations per step, each once, in order; all but the first `plain` follow a prompt that
    contains them (`shown`, as in SolvedTeacher).

    Only the demonstration after the prompt is trained on, so a model learns to use an answer in its context. The
    `plain` ones keep it trained on bare prompts. Source: by definition. Assumes a language task. Degenerate: with as
    many `plain` ones as the batch holds none is shown.
    """

    batch: int = 64
    plain: int = 16
    shown: str = SHOWN

    def init(self, scene: Scene) -> State:
        """Returns ordinal 0; raises AssayError if the task has no prompts, or cannot write those of this form."""
        check_shown(scene.task, "ShownTwice", self.shown)
        return Demonstrations().init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the next demonstrations as one batch."""
        task = scene.task
        assert isinstance(task, DemonstratedTask)
        first, state["next"] = state["next"], state["next"] + self.batch
        shown = task.demonstrate(np.arange(first, first + self.batch, dtype=np.int64), 0)
        bare, rest = shown.rows(slice(0, self.plain)), shown.rows(slice(self.plain, None))
        if len(rest):
            prompted = need_prompts(task, "ShownTwice")
            rest = prompted.onto(rest, told_prompts(prompted, rest.column("start"), rest, self.shown))
        yield concatenate([part for part in (bare, rest) if len(part)])
