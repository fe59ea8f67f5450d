"""Replay buffer that mixes in a share of an offline dataset. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from assay.core.record import Experience, Origin, State, concatenate
from assay.core.slots import Scene, Source
from assay.parts.sources.logged import Logged
from assay.parts.sources.replay import Replay


@dataclass(frozen=True)
class Retained(Source):
    """Yields batches with a share `kept` of offline rows and the rest from replay: RLPD's half (arXiv:2302.02948).

    Rounded down to whole rows. The column `source` tells them apart: POLICY rows come first, those of the dataset have
    its origin. Degenerate: kept 0 is the replay itself, row by row, and the dataset is not generated.
    """

    replay: Replay = Replay()
    log: Logged = Logged()
    kept: float = 0.0

    def init(self, scene: Scene) -> State:
        """Returns an empty buffer, and the dataset if some of it is kept."""
        return {"replay": self.replay.init(scene), "log": self.log.init(scene) if self.kept else {}}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields as many batches as the replay has; offline rows come last in each."""
        rows = int(self.kept * self.replay.batch)
        batches = self.replay(scene, state["replay"])
        if not rows:
            yield from batches
            return
        log = replace(self.log, batch=rows, updates=self.replay.updates)
        for new, old in zip(batches, log(scene.given(fresh=None, draw=scene.draw.at(9)), state["log"]), strict=False):
            own = new.rows(slice(rows, None))
            yield concatenate([replace(own, source=torch.full((len(own),), int(Origin.POLICY))), old])
