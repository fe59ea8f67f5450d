"""Changes of rewards and groups before credit: KL, length penalties, dropped groups, pairs. Axes: B, T."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.slots import Prepare, Scene, Select
from assay.ops import groups


@dataclass(frozen=True)
class KlInReward(Prepare):
    """r_t <- r_t - coefficient * (log pi(a_t) - log pi_ref(a_t)): the k1 estimator as a reward (usual in RLHF).

    Its expected policy gradient is exactly that of reward - coefficient * KL(pi || ref).
    """

    coefficient: float = 0.05
    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `reward`; `score` keeps the task's own reward."""
        log_ratio = (experience.logp - experience.column("logp_ref")) * experience.mask
        return replace(experience, reward=experience.reward - self.coefficient * log_ratio)


@dataclass(frozen=True)
class OverlongPenalty(Prepare):
    """Penalises long answers softly (DAPO, arXiv:2503.14476): 0 up to limit - margin tokens, then linear to -1 at
    limit.
    """

    limit: int
    margin: int

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the penalty to the reward of the last decision."""
        length = experience.mask.sum(1)
        penalty = ((self.limit - self.margin - length) / self.margin).clamp(-1.0, 0.0)
        column = torch.arange(experience.num_columns, device=length.device)
        last = torch.where(experience.mask, column, -1).max(1).values
        at_last = (column == last.unsqueeze(1)) & experience.mask
        return replace(experience, reward=experience.reward + penalty.unsqueeze(1) * at_last)


@dataclass(frozen=True)
class Informative(Select):
    """Keeps groups whose outcomes differ; the others have no advantage (DAPO's dynamic sampling, arXiv:2503.14476).

    Samples again, at most `max_rounds` times, until as many groups are kept as were requested. In games, a start at
    which one player's outcomes differ keeps the rows of all players, since credit may read the opponents' rows.
    """

    max_rounds: int = 3

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the rows of informative groups."""
        differs = groups.differs(groups.outcome(experience), groups.row_groups(experience))
        return experience.rows(groups.any_of(differs, groups.linked_groups(experience)))


@dataclass(frozen=True)
class PairUp(Prepare):
    """Pairs the best with the worst member of each group; of equal members the first row counts.

    Writes `chosen` [B]: +1 and -1 for the pair (for every row of an episode), 0 for rows in no pair. Degenerate:
    groups with equal outcomes are masked.
    """

    writes: ClassVar[tuple[str, ...]] = ("chosen",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `chosen` and masks the other rows."""
        outcome = groups.outcome(experience)
        by_group = groups.row_groups(experience)
        chosen = torch.zeros_like(outcome)
        there = by_group.share > 0
        best = first_extreme(torch.where(there, outcome, -torch.inf), by_group)
        worst = first_extreme(torch.where(there, -outcome, -torch.inf), by_group)
        differs = groups.differs(outcome, by_group)
        chosen[best & differs] = 1.0
        chosen[worst & differs] = -1.0
        chosen = groups.over_episode(chosen, experience)
        return replace(experience, mask=experience.mask & (chosen != 0).unsqueeze(1)).add({"chosen": chosen})


def first_extreme(value_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Marks the first row of each group that has the group's largest value, bool [B]."""
    largest = value_B.new_full((by_group.num,), -torch.inf).scatter_reduce(0, by_group.index, value_B, "amax")
    candidate = value_B == largest[by_group.index]
    row = torch.arange(len(value_B), device=value_B.device)
    first = row.new_full((by_group.num,), len(value_B)).scatter_reduce(
        0, by_group.index, torch.where(candidate, row, len(value_B)), "amin"
    )
    return row == first[by_group.index]
