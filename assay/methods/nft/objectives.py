"""Wrong answers as maximum likelihood of an implicit negative policy. Axes: B sequences, T decisions.

The behaviour policy is a mixture of correct and wrong answers, pi_old = r pi+ + (1 - r) pi-, with r the prompt's pass
rate. Taking pi for pi+ gives pi- = (pi_old - r pi) / (1 - r), hence pi-/pi_old = 1 + o (1 - rho) with the odds o = r
/ (1 - r). The loss of a correct answer is -log rho, of a wrong one -log(1 + o (1 - rho)) (NFT, arXiv:2505.18116, eq.
8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.slots import TrustRegion
from assay.parts.objectives.trust import bounded_ratio

LEAST_ODDS, MOST_ODDS = 1e-6, 1e6


def odds_of_scaled(size: Tensor) -> Tensor:
    """Returns A^2: a wrong answer's advantage is -sqrt(o) if outcomes 0 and 1 were centred and scaled."""
    return size.square()


def odds_of_centred(size: Tensor) -> Tensor:
    """Returns |A| / (1 - |A|), at most 50 |A|: a wrong answer's advantage is -r if outcomes 0 and 1 were centred
    alone.
    """
    return size / (1.0 - size.clamp(max=0.98))


@dataclass(frozen=True)
class NegativeAware(TrustRegion):
    """-A log rho where A > 0;  -(|A| / o) log max(1 + o (1 - rho), floor) where A < 0, with o = odds(|A|).

    The prompt's weight is in A: sqrt((1 - r) / r) with `odds_of_scaled`, 1 - r with `odds_of_centred`. The floor
    clips the value but not the gradient. `negative` scales the loss of wrong answers; 0 is rejection fine-tuning. At
    ratio one the gradient is REINFORCE's; as rho falls, a wrong answer's fades like rho / (1 + o (1 - rho)).
    Degenerate: A = 0 gives 0; outcomes other than 0 and 1 only change how fast it fades.
    """

    odds: Callable[[Tensor], Tensor] = odds_of_scaled
    floor: float = 1.0
    negative: float = 1.0
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"odds": odds_of_centred, "floor": 0.1},)

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss, wrong answers whose value the floor clipped; they keep their gradient)."""
        size = advantage.abs()
        odds = self.odds(size).clamp(LEAST_ODDS, MOST_ODDS)
        gain = odds * (1.0 - bounded_ratio(log_ratio))
        least = self.floor - 1.0
        held = gain.detach().clamp(min=least)
        # The value of the clipped logarithm with the slope of the plain one at the clipped point.
        log_negative = torch.log1p(held) + (gain - gain.detach()) / (1.0 + held)
        wrong = -self.negative * size / odds * log_negative
        return torch.where(advantage > 0, -advantage * log_ratio, wrong), (advantage < 0) & (gain.detach() < least)
