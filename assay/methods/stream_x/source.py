"""Training on each decision once, in order. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from assay.core.record import Experience, State
from assay.core.slots import Scene, Source
from assay.parts.sources.fresh import need_fresh


@dataclass(frozen=True)
class OneByOne(Source):
    """Yields every fresh decision with its next column, one after the other; columns that are not decisions are left
    out.
    """

    def init(self, scene: Scene) -> State:
        """Returns an empty state."""
        return {}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields two columns at a time: the decisions of one time step, and the context after them."""
        fresh = scene.fresh
        experience = need_fresh(fresh)
        for t in range(experience.num_columns - 1):
            if bool(experience.mask[:, t].any()):
                pair = experience.columns(t, t + 2)
                first = torch.tensor([True, False], device=pair.mask.device)
                yield replace(pair, mask=pair.mask & first)
