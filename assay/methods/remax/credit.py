"""Credit against the greedy answer. Axes: B rows, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, Scene
from assay.ops import groups, returns


@dataclass(frozen=True)
class AgainstGreedy(Credit):
    """gamma^(T - t) clip(R - R_greedy, -limit, limit) - beta k_t of decision t = 0..T-1, k the log-ratio to the
    reference. With `to_go`: sum of gamma^(s - t) (r_s - beta k_s) over s >= t, minus R_greedy; nothing is clipped.

    ReMax (arXiv:2310.10505). The baseline does not depend on the row's decisions, so it changes no expected gradient.
    gamma is `discount`, beta `kl`. Degenerate: an answer as good as the greedy one has the KL term alone.
    """

    discount: float = 0.99
    kl: float = 0.05
    limit: float = 5.0
    to_go: bool = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})
    reads: ClassVar[tuple[str, ...]] = ("greedy_outcome",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)
    centred: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"episodes": "decisions are counted, and rewards added, to the end of the row"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`."""
        mask, greedy = experience.mask, experience.column("greedy_outcome")
        penalty = self.kl * (experience.logp - experience.column("logp_ref")) * mask
        if self.to_go:
            ends = experience.terminal, experience.truncated
            to_go = returns.discounted_returns(experience.reward - penalty, mask, *ends, self.discount)
            return experience.add({"advantage": (to_go - greedy.unsqueeze(1)) * mask})
        ahead = (groups.outcome(experience) - greedy).clamp(-self.limit, self.limit).unsqueeze(1)
        left = mask.flip(1).cumsum(1).flip(1).to(penalty.dtype)
        return experience.add({"advantage": (self.discount**left * ahead - penalty) * mask})
