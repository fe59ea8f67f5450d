"""Demonstrations that grow by what an overseer did. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Origin, State
from assay.core.slots import Scene
from assay.ops import random
from assay.parts.sources.logged import Logged, at
from assay.parts.sources.replay import Replay, from_columns, transitions


@dataclass(frozen=True)
class Growing(Logged):
    """`Logged` whose one dataset grows by the decisions of the fresh experience that are marked `intervened`; rows are
    drawn uniformly from both together, and the column `source` of the new ones is HUMAN.

    The last `capacity` of them are kept, and saved. Degenerate: without such decisions it is `Logged`, row by row.
    """

    capacity: int = 100_000

    def init(self, scene: Scene) -> State:
        """Returns the dataset, and an empty buffer; raises AssayError if there are several datasets."""
        if len(self.logs) != 1:
            raise AssayError(f"demonstrations that grow are one dataset; {len(self.logs)} were given. Join the files")
        return {**super().init(scene), "added": self.ring.init(scene)}

    @property
    def ring(self) -> Replay:
        """The buffer of what was added."""
        return Replay(self.capacity, warmup=0)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Takes in the overseer's decisions at once, whether or not a batch is drawn; then yields the batches."""
        fresh = scene.fresh
        if fresh is not None and "intervened" in fresh.extra:
            theirs = replace(fresh, mask=fresh.mask & fresh.extra["intervened"])
            if bool(theirs.mask.any()):
                self.ring.store(transitions(theirs), state["added"])
        return self.batches(scene, state)

    def batches(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields rows of the dataset, then those that were added."""
        (shown,), added = state["contents"].columns, state["added"]
        num = len(shown["mask"])
        for update in range(self.updates):
            index = torch.from_numpy(random.integers(scene.draw.at(4, update, 0), num + added["size"], self.batch))
            old, new = index[index < num], index[index >= num] - num
            parts = [rows_at(shown, old), rows_at(added["columns"], new)] if len(new) else [rows_at(shown, old)]
            joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
            origin = torch.where(torch.arange(len(index)) < len(old), self.logs[0].origin, int(Origin.HUMAN))
            yield replace(from_columns(joined), source=origin)


def rows_at(columns: dict[str, Tensor], places: Tensor) -> dict[str, Tensor]:
    """Returns these rows of all columns."""
    return {name: at(column, places) for name, column in columns.items()}
