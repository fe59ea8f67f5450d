"""Credit that is lower where the policy is confident. Axes: B rows, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Credit, Scene
from assay.ops import groups


def confidence_of(experience: Experience, share: float) -> Tensor:
    """Returns exp of the mean of each row's lowest recorded log-probabilities, a share of them, at least one, [B]."""
    mask = experience.mask
    lowest = torch.where(mask, experience.logp, torch.inf).sort(1).values
    num_B = (share * mask.sum(1) + 1e-9).long().clamp(min=1)
    taken = (torch.arange(mask.shape[1], device=mask.device) < num_B.unsqueeze(1)) & lowest.isfinite()
    return torch.where(mask.any(1), (torch.where(taken, lowest, 0.0).sum(1) / num_B).exp(), 0.0)


@dataclass(frozen=True)
class LessWhereConfident(Credit):
    """A <- A - alpha (c - mean c of the group) in groups with a positive outcome, c the confidence in the answer.

    The advantage stays centred. Degenerate: alpha 0 changes nothing.
    """

    alpha: float = 1.0
    lowest: float = 0.2
    reads_shares: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)
    breaks: ClassVar[dict[str, str]] = {"episodes": "the lowest log-probabilities are those of a row"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `advantage`."""
        by_group = groups.row_groups(experience)
        confidence = confidence_of(experience, self.lowest)
        above = confidence - groups.mean(confidence, by_group)
        solved = groups.any_of((groups.outcome(experience) > 0) & (by_group.share > 0), by_group)
        shift = torch.where(solved, -self.alpha * above, 0.0).unsqueeze(1)
        return experience.add({"advantage": (experience.column("advantage") + shift) * experience.mask})
