"""Replay buffer that mixes in a share of an offline dataset. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from assay.core.record import Experience, Origin, State, concatenate
from assay.core.slots import Reward, Scene, Source
from assay.parts.sources.logged import Logged
from assay.parts.sources.replay import Replay


@dataclass(frozen=True)
class Retained(Source):
    """Yields batches with a share `kept` of offline rows and the rest from replay: RLPD's half (arXiv:2302.02948).

    Rounded down to whole rows. The column `source` tells them apart: POLICY rows come first, those of the dataset have
    its origin. With a `reward`, each batch has the rewards that this gives it now and not the stored ones: offline rows
    have those of the task, and a reward that learns has changed since. Of replayed rows no one says whether they were
    successes: if the data do, it is false there. Degenerate: kept 0 is the replay itself, row by row, and the dataset
    is not generated. Assumes off-policy losses.
    """

    replay: Replay = Replay()
    log: Logged = Logged()
    kept: float = 0.0
    reward: Reward | None = None

    def init(self, scene: Scene) -> State:
        log, reward = self.log.init(scene) if self.kept else {}, self.reward.init(scene) if self.reward else {}
        return {"replay": self.replay.init(scene), "log": log, "reward": reward}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields as many batches as the replay has; each is rewarded after the updates on the one before."""
        for batch in self.mixed(scene, state):
            yield self.reward(batch, scene, state["reward"]) if self.reward else batch

    def mixed(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the batches as they are stored; offline rows come last in each."""
        rows = int(self.kept * self.replay.batch)
        batches = self.replay(scene, state["replay"])
        if not rows:
            yield from batches
            return
        log = replace(self.log, batch=rows, updates=self.replay.updates)
        for new, old in zip(batches, log(scene.given(draw=scene.draw.at(9)), state["log"]), strict=False):
            own = new.rows(slice(rows, None))
            if "success" in old.extra:
                own = own.add({"success": torch.zeros_like(own.mask)})
            yield concatenate([replace(own, source=torch.full((len(own),), int(Origin.POLICY))), old])
