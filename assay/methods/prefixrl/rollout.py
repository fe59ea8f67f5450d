"""Starts inside a stored solution: its prefix is given, the policy completes it. Axes: B rows, T columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import DemonstratedTask, ResumableTask, Rollout, Scene
from assay.ops import random
from assay.parts.rollouts.episodes import group_rows
from assay.playing.resumed import first_decisions


@dataclass(frozen=True)
class FromPrefixes(Rollout):
    """Gathers groups that start after the first h decisions of the task's demonstration, h = floor(f |y|), the same
    for all members; f is uniform in [shortest, longest], and 0 with probability `plain`.

    The given decisions are context: mask false, no loss, no ratio. For tokens the start is prompt + prefix; for
    control it is the state that the given actions lead to. h is at most |y| - 1, so that a decision is left.
    Degenerate: longest = 0 is `Episodes`.
    """

    num_starts: int = 32
    group_size: int = 8
    shortest: float = 0.4
    longest: float = 0.8
    plain: float = 0.25
    writes: ClassVar[tuple[str, ...]] = ("prefix",)

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no demonstrations."""
        task = scene.task
        if not isinstance(task, DemonstratedTask) or not isinstance(task, ResumableTask):
            raise AssayError(f"FromPrefixes needs a task with demonstrations; '{task.name}' has none. Use Episodes")
        return {}

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` episodes; `prefix` [B] is the number of given decisions."""
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        assert isinstance(task, DemonstratedTask)
        assert isinstance(task, ResumableTask)
        shown = task.demonstrate(starts, 0)
        where, is_plain = (random.uniform(Draw(draw.seed, (11, tag)), starts) for tag in range(2))
        fraction = (self.shortest + (self.longest - self.shortest) * where) * (is_plain >= self.plain)
        length = shown.mask.sum(1)
        given = torch.minimum((torch.from_numpy(fraction) * length).long(), (length - 1).clamp(min=0))
        rows, samples = group_rows(np.arange(len(starts)), self.group_size)
        begun = first_decisions(shown, given).rows(torch.from_numpy(rows))
        played = task.resume(actor, begun, samples, draw, split=0)
        return played.add({"prefix": given[torch.from_numpy(rows)]})
