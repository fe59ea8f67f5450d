"""Credit from whole outcomes: baseline x scale, the same number for every decision of an episode. Axes: B, T.

advantage_bt = (R_b - baseline_b) / scale_b      R_b: total reward of row b's episode
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, RowStatistic, Scene
from assay.ops import groups


@dataclass(frozen=True)
class NoBaseline(RowStatistic):
    """0: plain REINFORCE."""

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Zeros."""
        return torch.zeros_like(outcome_B)


@dataclass(frozen=True)
class GroupMean(RowStatistic):
    """Mean outcome of the row's group, itself included; a group of one has advantage 0."""

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Group means."""
        return groups.mean(outcome_B, groups.row_groups(experience))


@dataclass(frozen=True)
class LeaveOneOut(RowStatistic):
    """Mean outcome of the others in the group: independent of the row's own decisions, hence unbiased (RLOO,
    arXiv:2402.14740). A group of one has baseline 0."""

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Means of the others."""
        return groups.mean_of_others(outcome_B, groups.row_groups(experience))


@dataclass(frozen=True)
class BatchMean(RowStatistic):
    """Mean outcome of all episodes with a decision."""

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """One number for all rows."""
        share = groups.row_groups(experience).share.to(outcome_B.dtype)
        return ((outcome_B * share).sum() / share.sum().clamp(min=1)).expand_as(outcome_B)


@dataclass(frozen=True)
class NoScale(RowStatistic):
    """1."""

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Ones."""
        return torch.ones_like(outcome_B)


@dataclass(frozen=True)
class GroupDeviation(RowStatistic):
    """Standard deviation (n - 1) of the group plus `epsilon`. Weighs groups by 1 / difficulty: GRPO's bias."""

    epsilon: float = 1e-4

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Group deviations, never 0."""
        return groups.deviation(outcome_B, groups.row_groups(experience)) + self.epsilon


@dataclass(frozen=True)
class OutcomeCredit(Credit):
    """Outcome minus `baseline`, divided by `scale`, on every decision of the row.

    Degenerate: equal rewards give advantage 0; a group of one gives 0 with GroupMean and R with LeaveOneOut.
    """

    baseline: RowStatistic = GroupMean()
    scale: RowStatistic = NoScale()
    needs: ClassVar[frozenset[Need]] = frozenset()
    breaks: ClassVar[dict[str, str]] = {}
    writes: ClassVar[tuple[str, ...]] = ("advantage", "outcome")

    @property
    def centred(self) -> bool:
        """Whether advantages sum to zero in each group: true for the group mean only."""
        return isinstance(self.baseline, GroupMean)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage` and `outcome`."""
        outcome = groups.outcome(experience)
        advantage = (outcome - self.baseline(outcome, experience)) / self.scale(outcome, experience)
        return experience.add({"advantage": advantage.unsqueeze(1) * experience.mask, "outcome": outcome})
