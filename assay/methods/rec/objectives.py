"""REINFORCE with two free choices in place of a clipped ratio: which decisions learn, and what each weighs.

    grad loss_t = -A_t * weight(rho_t, A_t) * keeps(rho_t, A_t) * grad log pi(a_t),   none in rho, keeps or weight

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
    """Which decisions learn."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Bool [B, T]; true at ratio one."""


class Weight(Choice, Protocol):
    """What a decision weighs."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Not negative, [B, T]."""


# ---------------------------------------------------------------------------------------------------- which learn
@dataclass(frozen=True)
class EveryDecision(Keeps):
    """All of them: plain REINFORCE, whatever the data."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """True."""
        return torch.ones_like(ratio, dtype=torch.bool)


@dataclass(frozen=True)
class OneSide(Keeps):
    """Those that have not yet gone as far as they are pushed: ratio <= 1 + high for A > 0, >= 1 - low for A < 0.

    A = 0 pushes nowhere: all of those are kept.
    """

    low: float = 0.2
    high: float = 0.2

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """What PPO's clip leaves a gradient."""
        below, above = ratio <= 1.0 + self.high, ratio >= 1.0 - self.low
        return torch.where(advantage > 0, below, torch.where(advantage < 0, above, below | above))


@dataclass(frozen=True)
class TwoSide(Keeps):
    """Those with a ratio in [1 - low, 1 + high], whichever way they are pushed."""

    low: float = 0.2
    high: float = 0.2

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Inside the range."""
        return (ratio >= 1.0 - self.low) & (ratio <= 1.0 + self.high)


@dataclass(frozen=True)
class Ring(Keeps):
    """TwoSide, and those far out that are pushed back in: ratio <= 1 - far_low for A >= 0, >= 1 + far_high for
    A <= 0. What lies between near and far does not learn.
    """

    low: float = 0.2
    high: float = 0.2
    far_low: float = 0.6
    far_high: float = 2.0

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Near, or far on the side from which it is called back."""
        back_up = (advantage >= 0) & (ratio <= 1.0 - self.far_low)
        back_down = (advantage <= 0) & (ratio >= 1.0 + self.far_high)
        return TwoSide(self.low, self.high)(ratio, advantage) | back_up | back_down


# ---------------------------------------------------------------------------------------------------- what they weigh
@dataclass(frozen=True)
class Even(Weight):
    """1: no importance sampling."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Ones."""
        return torch.ones_like(ratio)


@dataclass(frozen=True)
class Importance(Weight):
    """The ratio itself."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Importance sampling."""
        return ratio


@dataclass(frozen=True)
class ExpAdvantage(Weight):
    """exp(A / temperature), at most e^20: good samples count more than bad ones ("RED-Weight")."""

    temperature: float = 1.0
    breaks: ClassVar[dict[str, str]] = {"first_order": "the data are weighed on purpose, at ratio one too"}

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Above 1 for what was better than its group."""
        return (advantage / self.temperature).clamp(max=LARGEST_LOG_RATIO).exp()


@dataclass(frozen=True)
class MaskedScore(TrustRegion):
    """-A * weight * log pi; decisions that `keeps` does not keep have their value, and no gradient, as with a clip.

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

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, not kept)."""
        ratio = bounded_ratio(log_ratio.detach())
        kept = self.keeps(ratio, advantage)
        return -advantage * self.weight(ratio, advantage) * torch.where(kept, logp, logp.detach()), ~kept
