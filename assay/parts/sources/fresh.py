"""Training on the experience just gathered. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Scene, Source
from assay.ops import random


def need_fresh(fresh: Experience | None) -> Experience:
    """Returns the fresh experience; raises AssayError if the recipe has no rollout."""
    if fresh is None:
        raise AssayError(
            "this source trains on fresh experience, but the recipe has no rollout. Set rollout=Episodes() or "
            "Fragments()"
        )
    return fresh


@dataclass(frozen=True)
class FreshSequences(Source):
    """Yields whole sequences: `epochs` passes, each in `minibatches` parts; groups stay together.

    Degenerate: one part is the experience as it is. Source: arXiv:1707.06347, epochs and minibatches. Assumes that the
    batch is of the current policy.
    """

    epochs: int = 1
    minibatches: int = 1

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        fresh, draw = scene.fresh, scene.draw
        experience = need_fresh(fresh)
        for epoch in range(self.epochs):
            if self.minibatches == 1:
                yield experience
                continue
            for rows in shuffled_groups(experience, self.minibatches, draw.at(3, epoch)):
                yield experience.rows(rows)


def shuffled_groups(experience: Experience, num: int, draw: Draw) -> list[Tensor]:
    """Returns the row indices of `num` parts with about equally many groups each; empty parts are left out."""
    label = experience.group if experience.group is not None else torch.arange(len(experience))
    _, index = torch.unique(label, return_inverse=True)
    num_groups = int(index.max()) + 1
    order = torch.from_numpy(random.permutation(draw, num_groups))
    place = torch.empty_like(order)
    place[order] = torch.arange(num_groups)
    part = place[index] * num // num_groups
    return [rows for k in range(num) if len(rows := (part == k).nonzero().squeeze(1))]


@dataclass(frozen=True)
class FreshDecisions(Source):
    """Yields single decisions, shuffled across sequences: for actors whose context is one observation (PPO in
    control). Degenerate: an empty mask yields no batch.

    Source: arXiv:1707.06347. Assumes that decisions are independent given their context.
    """

    epochs: int = 4
    minibatches: int = 4

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields minibatches of sequences of length one; columns that are not decisions are left out."""
        fresh, draw = scene.fresh, scene.draw
        decisions = flatten(need_fresh(fresh))
        for epoch in range(self.epochs):
            order = permutation(draw.at(3, epoch), decisions)
            for part in order.tensor_split(self.minibatches):
                if len(part):
                    yield decisions.rows(part)


def permutation(draw: Draw, experience: Experience) -> Tensor:
    """Returns a permutation of the rows, on their device and the same on all."""
    if experience.mask.is_cpu:
        return torch.from_numpy(random.permutation(draw, len(experience)))
    from assay.ops import random_torch  # here: a run on the CPU does not need it

    return random_torch.permutation(draw, len(experience), experience.mask.device)


def flatten(experience: Experience) -> Experience:
    """Turns every decision into a sequence of its own, [B, T, ...] -> [decisions, 1, ...]."""
    row, column = experience.mask.nonzero(as_tuple=True)
    return experience.map(lambda value: value[row, column].unsqueeze(1) if value.dim() >= 2 else value[row])
