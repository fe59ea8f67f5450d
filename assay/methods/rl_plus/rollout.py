"""Groups that also hold what somebody else did from the same start. Axes: B rows, T columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, Origin, State, concatenate
from assay.core.slots import DemonstratedTask, Rollout, Scene, Wrapper, frame_of
from assay.parts.rollouts.episodes import Episodes
from assay.playing.narrowing import LOGP_MODEL


@dataclass(frozen=True)
class WithDemonstrations(Rollout):
    """What `gather` gathers, and in each group one more row: the task's demonstration of the same start.

    So demonstrations are in the group's statistics, and a group of wrong answers still has something to learn from. The
    column `source` tells the rows apart: POLICY for its own, what the task says for the others, whose recorded
    log-probability is 0, since nobody knows who acted. Their rewards are judged like all.
    """

    gather: Rollout = Episodes()
    breaks: ClassVar[dict[str, str]] = {"recorded": "nobody knows with what probability a demonstration was acted"}

    def init(self, scene: Scene) -> State:
        """As what gathers says; a task without demonstrations is refused."""
        task = scene.task
        if not isinstance(task, DemonstratedTask):
            raise AssayError(f"WithDemonstrations needs demonstrations, and '{task.name}' has none; use Episodes")
        if not self.gather.num_starts:
            raise AssayError(f"{type(self.gather).__name__} chooses its own starts; WithDemonstrations needs groups")
        return self.gather.init(scene)

    @property
    def num_starts(self) -> int:
        """The starts it asks for."""
        return self.gather.num_starts

    @property
    def frame(self) -> Wrapper | None:
        """That of what gathers."""
        return frame_of(self.gather)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """The policy's own rows, then one for each start."""
        task, starts = scene.task, scene.starts
        assert isinstance(task, DemonstratedTask)
        own = self.gather(scene, state)
        shown = task.demonstrate(np.unique(starts), 0)
        if LOGP_MODEL in own.extra:  # a column that some rows have not would be dropped
            shown = shown.add({LOGP_MODEL: shown.logp})
        policy = torch.full((len(own),), int(Origin.POLICY))
        return concatenate([replace(own, source=policy), shown])
