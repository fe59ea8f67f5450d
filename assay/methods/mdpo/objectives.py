"""Mirror descent as a trust region: a KL to the behaviour policy instead of a clip. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.core.slots import Schedule, TrustRegion, number
from assay.parts.objectives.trust import LARGEST_LOG_RATIO


@dataclass(frozen=True)
class MirrorDescent(TrustRegion):
    """-A * ratio + (ratio * log ratio - ratio + 1) / step_size: MDPO, on-policy (arXiv:2005.09814).

    The second term, averaged over the behaviour policy, is KL(pi || pi_old), with the KL's gradient: an estimate from
    the recorded decisions alone, not negative and 0 at ratio 1, for discrete and continuous actions. The averaged
    loss is smallest at pi_old * exp(step_size * A) / Z. Nothing is clipped. Degenerate: at ratio 1 it is REINFORCE.
    """

    step_size: float | Schedule = 1.0
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "without credit it pulls towards the behaviour policy"}

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss, whether the ratio was bounded to stay finite)."""
        bounded = log_ratio.clamp(max=LARGEST_LOG_RATIO)
        ratio = bounded.exp()
        proximity = ratio * bounded - ratio + 1.0
        return -advantage * ratio + proximity / number(self.step_size), log_ratio > LARGEST_LOG_RATIO
