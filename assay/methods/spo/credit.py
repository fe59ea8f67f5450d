"""Credit of segments from branching rollouts, and selection of the credited decisions. Axes: B rows, T decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, Prepare, Scene
from assay.methods.spo.branches import backed_up
from assay.parts.credit.outcome import OutcomeCredit


@dataclass(frozen=True)
class SegmentCredit(Credit):
    """advantage = reward of the segment + V(its end) - V(its beginning), on every decision of the row.

    Rows are edges of a tree (columns `parent` and `branch`); V(node) is the mean worth of the rows that start at it,
    without a critic (SPO, arXiv:2505.23564). With the column `probe` the value is the mean over probes alone, and
    probes have no credit. Advantages of counted siblings sum to 0; along a path they add up to the outcome minus the
    root's value. Degenerate: a tree of depth 1, or a record without a tree, gives outcome minus group mean; a row
    without siblings gives 0.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    centred: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`."""
        if experience.parent is None or experience.branch is None:
            advantage = OutcomeCredit()(experience).column("advantage")
            return experience.add({"advantage": advantage})
        mask = experience.mask
        there = mask.any(1)
        probe = experience.extra.get("probe")
        reward = (experience.reward * mask).sum(1)
        counts, trained = (there, there) if probe is None else (there & probe, there & ~probe)
        worth, before, known = backed_up(reward, counts, experience.parent, experience.branch)
        advantage = torch.where(trained & known, worth - before, 0.0)
        return experience.add({"advantage": advantage.unsqueeze(1) * mask})


@dataclass(frozen=True)
class Uncertain(Prepare):
    """Trains only decisions taken with a probability below `limit`: SPO's probability mask.

    Place it after a credit: a nearly certain decision had no alternative to credit. Assumes discrete actions; a
    density is not a probability. Degenerate: a limit above 1 keeps all.
    """

    limit: float = 0.9
    needs: ClassVar[frozenset[Need]] = frozenset()

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Narrows the mask."""
        return replace(experience, mask=experience.mask & (experience.logp < math.log(self.limit)))


@dataclass(frozen=True)
class WithCredit(Prepare):
    """Trains only decisions with a nonzero credit, since the others dilute means. Place it after a credit."""

    tolerance: float = 1e-8
    needs: ClassVar[frozenset[Need]] = frozenset()
    reads: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Narrows the mask."""
        return replace(experience, mask=experience.mask & (experience.column("advantage").abs() > self.tolerance))
