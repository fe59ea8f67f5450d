"""Selection of a group's samples before credit. Axes: B rows, G groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Draw, Experience, Need, State
from assay.core.slots import Prepare, Scene
from assay.ops import groups, random


@dataclass(frozen=True)
class DropSurplusNegatives(Prepare):
    """Masks random samples below their group's mean until they are no more than those at or above it.

    "RED-Drop" of arXiv:2509.24203. Masked samples leave training: a later credit takes the mean of the others. The
    choice is a function of (run seed, step, start, sample index). Degenerate: equal outcomes and groups of one stay.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `mask`."""
        by_group = groups.row_groups(experience)
        outcome = groups.outcome(experience)
        share = by_group.share.to(outcome.dtype)
        # Rounding of the mean must not turn a sample that equals all others into a negative one.
        negative = (outcome < groups.mean(outcome, by_group)) & groups.differs(outcome, by_group)
        num_others = groups.total(share * ~negative, by_group)[by_group.index]
        surplus = negative & (rank_among(negative, by_group, share, lots(experience, scene.draw)) > num_others - 0.5)
        return replace(experience, mask=experience.mask & ~surplus.unsqueeze(1))


def lots(experience: Experience, draw: Draw) -> Tensor:
    """Returns a uniform number for each sample, [B] float64; rows of an episode share start and sample index."""
    start, sample = (experience.column(name).cpu().numpy() for name in ("start", "sample"))
    return torch.from_numpy(random.uniform(draw, start, sample)).to(experience.mask.device)


def rank_among(chosen_B: Tensor, by_group: groups.Groups, share_B: Tensor, lot_B: Tensor) -> Tensor:
    """Returns how many chosen episodes of the row's group have a smaller lot, [B]."""
    same = by_group.index.unsqueeze(1) == by_group.index.unsqueeze(0)
    before = same & chosen_B.unsqueeze(0) & (lot_B.unsqueeze(0) < lot_B.unsqueeze(1))
    return before.to(share_B.dtype) @ share_B
