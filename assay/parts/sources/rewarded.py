"""Batches that are rewarded when they are drawn. Axes: B sequences, T columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene, Source
from assay.parts.rewards.scaled import ScaledReward
from assay.parts.sources.replay import Replay


@dataclass(frozen=True)
class Rewarded(Source):
    """Batches of another source, each with the rewards that `reward` gives it now; stored ones are not used.

    For rewards that learn: a transition is worth what the reward says at this update, not what it said when the
    transition was gathered. Degenerate: a reward that changes nothing is the source itself.
    """

    source: Source = Replay()
    reward: Reward = ScaledReward(1.0)

    def init(self, scene: Scene) -> State:
        """The states of both."""
        return {"source": self.source.init(scene), "reward": self.reward.init(scene)}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """The source's batches; each is rewarded after the updates on the one before."""
        for batch in self.source(scene, state["source"]):
            yield self.reward(batch, scene, state["reward"])
