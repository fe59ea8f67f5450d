"""Rollouts that visit a start again. Axes: B rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from assay.core.record import Experience, State
from assay.core.slots import Rollout, Scene

FAR = 1 << 32
"""Distance of the group numbers of two visits: above every start."""


@dataclass(frozen=True)
class Revisits(Rollout):
    """Gathers whole episodes like `Episodes`, with other random numbers at every visit of a start, also in one batch;
    each visit is a group. (Random numbers belong to a start and a sample: samples go on counting.)

    Source: by definition. Assumes that starts repeat. Degenerate: without repeats it is `Episodes`.
    """

    num_starts: int = 32
    group_size: int = 8

    def init(self, scene: Scene) -> State:
        return {"visits": {}}

    def __call__(self, scene: Scene, state: State) -> Experience:
        samples, visits = [np.empty(0, dtype=np.int64)], dict(state["visits"])
        for start in map(str, scene.starts.tolist()):
            begun = visits.get(start, 0)
            samples.append(begun + np.arange(self.group_size))
            visits[start] = begun + self.group_size
        state["visits"] = visits
        rows = np.repeat(scene.starts, self.group_size)
        played = scene.task.play(scene.actor, rows, np.concatenate(samples), scene.draw, split=0, greedy=False)
        visit = played.column("sample") // self.group_size
        assert played.group is not None
        return replace(played, group=played.group + visit * FAR)
