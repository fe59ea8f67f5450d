"""Training on each decision once, in the order in which they were made. Axes: B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from assay.core.record import Experience, State
from assay.core.slots import Scene, Source
from assay.parts.sources.fresh import need_fresh


@dataclass(frozen=True)
class OneByOne(Source):
    """Every fresh decision with what followed it, one after the other; columns that are no decisions are left out."""

    def init(self, scene: Scene) -> State:
        """Nothing to remember."""
        return {}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Two columns at a time: the decisions of one moment, and the context after them."""
        fresh = scene.fresh
        experience = need_fresh(fresh)
        for t in range(experience.num_columns - 1):
            if bool(experience.mask[:, t].any()):
                pair = experience.columns(t, t + 2)
                first = torch.tensor([True, False], device=pair.mask.device)
                yield replace(pair, mask=pair.mask & first)
