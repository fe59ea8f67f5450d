"""Two prompts by their success rate. Axes: B rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from assay.core.record import Experience, State
from assay.core.slots import Curriculum, Scene
from assay.ops import groups
from assay.parts.curricula.in_order import next_starts


@dataclass(frozen=True)
class Pair(Curriculum):
    """Proposes two starts by turns: of those that are sometimes right and sometimes wrong, the one whose success rate
    is nearest to `first`, then the one of the others nearest to `second`. 0 and 1 are a hard and an easy one that are
    neither hopeless nor mastered; 1/2 and 1/2 have the highest variance.

    Rates come from the last visit of each of the task's first `pool` starts, so that the pair changes when one of it is
    learnt; with `once`, from the first visit. An answer is right above 1/2. Degenerate: while fewer than two such
    starts are known, further ones follow.
    """

    pool: int = 64
    first: float = 0.0
    second: float = 1.0
    once: bool = False
    reads_shares: ClassVar[bool] = True

    def init(self, scene: Scene) -> State:
        """Returns an empty table of rates."""
        return {"next": 0, "rates": {}}

    def pair(self, state: State) -> list[int]:
        """Returns the two starts; fewer if there are not yet two."""
        if len(state["rates"]) < self.pool:
            return []
        mixed = {int(start): rate for start, rate in state["rates"].items() if 0.0 < rate < 1.0}
        chosen: list[int] = []
        for rate in (self.first, self.second):
            free = sorted(mixed.keys() - set(chosen))
            chosen += [min(free, key=lambda start: abs(mixed[start] - rate))] if free else []
        return chosen

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns both starts by turns, or the next ones of the task."""
        pair = self.pair(state)
        return np.resize(pair, scene.num_starts) if len(pair) == 2 else next_starts(scene, state, scene.num_starts)

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Stores the share of right answers of every start that has a decision."""
        if len(self.pair(state)) == 2 and self.once:
            return
        there = experience.mask.any(1)
        start, right = experience.column("start")[there], groups.outcome(experience)[there] > 0.5
        rates = {str(one): float(right[start == one].double().mean()) for one in start.unique().tolist()}
        state["rates"] = {**state["rates"], **rates}
