"""Credit from episode outcomes: the same advantage for every decision of an episode. Axes: B, T.

advantage_bt = (R_b - baseline_b) / scale_b      R_b: total reward of row b's episode
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Credit, RowStatistic, Scene
from assay.ops import groups


@dataclass(frozen=True)
class Constant(RowStatistic):
    """The same number for every row. 1/2 as baseline and as scale makes -1 and +1 of 0 and 1. Degenerate: as baseline,
    0 is plain REINFORCE.

    Source: Williams 1992. Assumes that the number is a fair baseline for every prompt.
    """

    value: float = 0.0

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        return torch.full_like(outcome_B, self.value)


@dataclass(frozen=True)
class GroupMean(RowStatistic):
    """Mean outcome of the row's group, itself included. Degenerate: a group of one has advantage 0.

    Source: arXiv:2402.03300. Assumes several samples of each start.
    """

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        return groups.mean(outcome_B, groups.row_groups(experience))


@dataclass(frozen=True)
class LeaveOneOut(RowStatistic):
    """Mean outcome of the group's other rows (RLOO, arXiv:2402.14740).

    It does not depend on the row's own decisions, so the gradient is unbiased. Degenerate: a group of one has baseline
    0. Assumes independent samples.
    """

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        return groups.mean_of_others(outcome_B, groups.row_groups(experience))


@dataclass(frozen=True)
class BatchMean(RowStatistic):
    """Mean outcome of all episodes with a decision. Degenerate: a single episode has advantage 0.

    Source: Williams 1992. Assumes that starts are equally hard.
    """

    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the baseline is the mean of the whole batch"}

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        share = groups.row_groups(experience).share.to(outcome_B.dtype)
        mean = (outcome_B * share).sum() / share.sum().clamp(min=1)
        return groups.inside(mean, *groups.range_of(outcome_B, share > 0)).expand_as(outcome_B)


@dataclass(frozen=True)
class NoScale(RowStatistic):
    """Scale 1: outcomes keep their units. Degenerate: a group of equal outcomes has scale 1 as well.

    Source: arXiv:2503.20783. Assumes that outcomes of all groups have one unit.
    """

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        return torch.ones_like(outcome_B)


@dataclass(frozen=True)
class GroupDeviation(RowStatistic):
    """Standard deviation (n - 1) of the group plus `epsilon`. Weights groups by 1 / difficulty: GRPO's bias.

    Degenerate: equal outcomes, and a group of one, give `epsilon`. Source: arXiv:2402.03300. Assumes several samples of
    each start.
    """

    epsilon: float = 1e-4

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        return groups.deviation(outcome_B, groups.row_groups(experience)) + self.epsilon


@dataclass(frozen=True)
class OutcomeCredit(Credit):
    """Writes (outcome - `baseline`) / `scale` as the advantage of every decision of the row.

    Degenerate: equal rewards give advantage 0; a group of one gives 0 with GroupMean and R with LeaveOneOut. Source:
    arXiv:2402.03300. Assumes that only the outcome of a row is known, not which decision earned it.
    """

    baseline: RowStatistic = GroupMean()
    scale: RowStatistic = NoScale()
    breaks: ClassVar[dict[str, str]] = {}
    writes: ClassVar[Mapping[str, str]] = {
        "advantage": "BT: advantage of each decision",
        "outcome": "B: total reward of the row's episode",
    }

    def __post_init__(self) -> None:
        if self.scale == Constant(0.0):
            raise AssayError("OutcomeCredit.scale is Constant(0.0), and advantages are divided by it. Use NoScale()")

    @property
    def centred(self) -> bool:
        """Returns whether advantages sum to zero in each group: true for the group mean only."""
        return isinstance(self.baseline, GroupMean)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        outcome = groups.outcome(experience)
        advantage = (outcome - self.baseline(outcome, experience)) / self.scale(outcome, experience)
        return experience.add({"advantage": advantage.unsqueeze(1) * experience.mask, "outcome": outcome})
