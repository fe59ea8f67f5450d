"""A clip range for each row. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Loss, State
from assay.core.slots import Prepare, Scene, View
from assay.ops import groups
from assay.parts.objectives.policy import PolicyGradient, ratio_metrics
from assay.parts.objectives.trust import bounded_ratio


@dataclass(frozen=True)
class ElasticRange(Prepare):
    """clip_range = base * (1 + by_advantage * g) * (1 + by_variance * v), between `least` and `most`:
    g = tanh |A| of the row, v = 4 * variance of its group's outcomes, at most 1: 4 p (1 - p) of outcomes 0 and 1.

    `centred` takes g - 1/2 and v - 1/2, so that weak signals have less room than `base`. Place it after the credit.
    Degenerate: factors 0 give `base` to every decision.
    """

    base: float = 0.2
    by_advantage: float = 0.5
    by_variance: float = 0.5
    least: float = 0.1
    most: float = 0.5
    centred: bool = False
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("clip_range",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `clip_range`, the same on all decisions of a row."""
        mask, outcome, by_group = experience.mask, groups.outcome(experience), groups.row_groups(experience)
        advantage = (experience.column("advantage") * mask).sum(1) / mask.sum(1).clamp(min=1)
        away = (outcome - groups.mean(outcome, by_group)).square()
        middle = 0.5 if self.centred else 0.0
        sure = advantage.abs().tanh() - middle
        split = (4.0 * groups.mean(away, by_group)).clamp(max=1.0) - middle
        room = self.base * (1.0 + self.by_advantage * sure) * (1.0 + self.by_variance * split)
        return experience.add({"clip_range": room.clamp(self.least, self.most).unsqueeze(1) * mask})


@dataclass(frozen=True)
class ElasticGradient(PolicyGradient):
    """PolicyGradient whose ratios are clipped to 1 -+ `clip_range` of their row; `trust` is not used."""

    reads: ClassVar[tuple[str, ...]] = ("advantage", "clip_range")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over decisions."""
        log_ratio = self.ratio(view.scored.logp, batch)
        ratio, advantage = bounded_ratio(log_ratio), batch.column("advantage").detach()
        room = batch.column("clip_range").detach().clamp(min=0.0)
        plain, clipped = ratio * advantage, ratio.clamp(1.0 - room, 1.0 + room) * advantage
        loss, cut = -torch.minimum(plain, clipped), clipped < plain
        weighed = torch.where(batch.mask, loss, 0.0) * self.aggregate.weigh(batch)
        return Loss(weighed.sum(), self.count(batch), ratio_metrics(log_ratio.detach(), cut, batch))
