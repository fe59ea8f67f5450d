"""REINFORCE with two free choices in place of a clipped ratio: which decisions are trained, and their weights.

    grad loss_t = -A_t * weight(rho_t, A_t) * keeps(rho_t, A_t) * grad log pi(a_t),   no gradient in rho, keeps, weight

arXiv:2509.24203 ("REC"). With OneSide and Importance its gradient is that of PPO's clip. Axes: B, T decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.slots import Choice, TrustRegion
from assay.parts.objectives.trust import LARGEST_LOG_RATIO, bounded_ratio


class Keeps(Choice, Protocol):
    """Selects the decisions that are trained."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns bool [B, T]; true at ratio one."""


class Weight(Choice, Protocol):
    """Weights a decision."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns weights [B, T], not negative."""


# ---------------------------------------------------------------------------------------------------- selection
@dataclass(frozen=True)
class EveryDecision(Keeps):
    """Keeps all decisions: plain REINFORCE, whatever the data."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns true."""
        return torch.ones_like(ratio, dtype=torch.bool)


@dataclass(frozen=True)
class OneSide(Keeps):
    """Keeps decisions that have not moved beyond the bound: ratio <= 1 + high for A > 0, >= 1 - low for A < 0.

    Degenerate: A = 0 is always kept.
    """

    low: float = 0.2
    high: float = 0.2

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns the decisions to which PPO's clip leaves a gradient."""
        below, above = ratio <= 1.0 + self.high, ratio >= 1.0 - self.low
        return torch.where(advantage > 0, below, torch.where(advantage < 0, above, below | above))


@dataclass(frozen=True)
class TwoSide(Keeps):
    """Keeps decisions with a ratio in [1 - low, 1 + high], whatever the sign of A."""

    low: float = 0.2
    high: float = 0.2

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns whether the ratio is inside the range."""
        return (ratio >= 1.0 - self.low) & (ratio <= 1.0 + self.high)


@dataclass(frozen=True)
class Ring(Keeps):
    """Keeps what TwoSide keeps, and far decisions that are pulled back: ratio <= 1 - far_low for A >= 0, >= 1 +
    far_high for A <= 0. Decisions between near and far are not trained.
    """

    low: float = 0.2
    high: float = 0.2
    far_low: float = 0.6
    far_high: float = 2.0

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns whether the ratio is near, or far on the side from which A pulls it back."""
        back_up = (advantage >= 0) & (ratio <= 1.0 - self.far_low)
        back_down = (advantage <= 0) & (ratio >= 1.0 + self.far_high)
        return TwoSide(self.low, self.high)(ratio, advantage) | back_up | back_down


# ---------------------------------------------------------------------------------------------------- weights
@dataclass(frozen=True)
class Even(Weight):
    """Weight 1: no importance sampling."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns ones."""
        return torch.ones_like(ratio)


@dataclass(frozen=True)
class Importance(Weight):
    """Weight equal to the ratio: importance sampling."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns the ratio."""
        return ratio


@dataclass(frozen=True)
class ExpAdvantage(Weight):
    """Weight exp(A / temperature), at most e^20: good samples count more than bad ones ("RED-Weight")."""

    temperature: float = 1.0
    breaks: ClassVar[dict[str, str]] = {"first_order": "the data are weighted on purpose, at ratio one too"}

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns the weights, above 1 for positive advantages."""
        return (advantage / self.temperature).clamp(max=LARGEST_LOG_RATIO).exp()


@dataclass(frozen=True)
class MaskedScore(TrustRegion):
    """-A * weight * log pi; decisions that `keeps` drops have a value but no gradient, as with a clip.

    Degenerate: A = 0 gives 0.
    """

    keeps: Keeps = OneSide()
    weight: Weight = Even()
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"keeps": EveryDecision()},
        {"keeps": TwoSide(), "weight": Importance()},
        {"keeps": Ring()},
        {"keeps": EveryDecision(), "weight": ExpAdvantage()},
    )

    @property
    def breaks(self) -> dict[str, str]:
        """Returns the law that plain REINFORCE breaks."""
        is_plain = isinstance(self.keeps, EveryDecision) and not isinstance(self.weight, Importance)
        return {"old_policy": "neither the weights nor the selection read the ratio"} if is_plain else {}

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss, not kept)."""
        ratio = bounded_ratio(log_ratio.detach())
        kept = self.keeps(ratio, advantage)
        return -advantage * self.weight(ratio, advantage) * torch.where(kept, logp, logp.detach()), ~kept
