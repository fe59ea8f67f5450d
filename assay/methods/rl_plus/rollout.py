"""Groups that include a demonstration of the same start. Axes: B rows, T columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, Origin, State, concatenate
from assay.core.slots import DemonstratedTask, Rollout, Scene
from assay.core.spaces import Box, Discrete, MultiDiscrete, Space, Vocabulary
from assay.parts.rollouts.episodes import Around, Episodes
from assay.playing.narrowing import LOGP_MODEL


@dataclass(frozen=True)
class WithDemonstrations(Around):
    """Runs `gather` and adds one row to each group: the task's demonstration of the same start.

    Demonstrations enter the group's statistics, so a group of wrong answers still has a signal. The column `source`
    marks the rows: POLICY for own ones, the task's value for demonstrations, whose recorded log-probability is 0,
    since it is unknown. `uniform` [B] is the probability of an action under the uniform policy: 1 over the number of
    actions, or over the volume of a box. Demonstrations are rewarded like all rows.
    """

    gather: Rollout = Episodes()
    writes: ClassVar[tuple[str, ...]] = ("uniform",)
    breaks: ClassVar[dict[str, str]] = {"recorded": "the probability of a demonstration's decisions is unknown"}

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if the task has no demonstrations."""
        task = scene.task
        if not isinstance(task, DemonstratedTask):
            raise AssayError(f"WithDemonstrations needs demonstrations; '{task.name}' has none. Use Episodes")
        if not self.gather.num_starts:
            raise AssayError(f"{type(self.gather).__name__} draws its own starts; WithDemonstrations needs groups")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns the policy's own rows, then one for each start."""
        task, starts = scene.task, scene.starts
        assert isinstance(task, DemonstratedTask)
        own = self.gather(scene, state)
        shown = task.demonstrate(np.unique(starts), 0)
        if LOGP_MODEL in own.extra:  # a column that only some rows have would be dropped
            shown = shown.add({LOGP_MODEL: shown.logp})
        policy = torch.full((len(own),), int(Origin.POLICY))
        both = concatenate([replace(own, source=policy), shown])
        return both.add({"uniform": torch.full((len(both),), uniform_probability(task.spec.action))})


def uniform_probability(actions: Space) -> float:
    """Returns the probability, or the density, of each action under the uniform policy."""
    if isinstance(actions, Box):
        return 1.0 / math.prod(high - low for low, high in zip(actions.low, actions.high, strict=True))
    if isinstance(actions, MultiDiscrete):
        return 1.0 / math.prod(actions.sizes)
    assert isinstance(actions, Discrete | Vocabulary)
    return 1.0 / (actions.size if isinstance(actions, Vocabulary) else actions.n)
