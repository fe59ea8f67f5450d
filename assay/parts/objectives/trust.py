"""Trust regions: bounds on the policy change that the loss rewards. Axes: B sequences, T decisions.

Each maps (log ratio, advantage, logp) to (loss per decision, whether the decision was clipped).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import TrustRegion

LARGEST_LOG_RATIO = 20.0


def bounded_ratio(log_ratio: Tensor) -> Tensor:
    """Returns exp(log ratio), at most e^20: an overflow would give clipped decisions a gradient of NaN."""
    return log_ratio.clamp(max=LARGEST_LOG_RATIO).exp()


@dataclass(frozen=True)
class NoTrust(TrustRegion):
    """-A * log pi: REINFORCE. Assumes data of the current policy, since the ratio is not used.

    Degenerate: at ratio 1 its gradient is that of Unclipped. Source: Williams 1992.
    """

    breaks: ClassVar[dict[str, str]] = {"old_policy": "REINFORCE has no ratio"}

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        return -advantage * logp, torch.zeros_like(advantage, dtype=torch.bool)


@dataclass(frozen=True)
class Unclipped(TrustRegion):
    """-A * ratio: the plain importance-weighted surrogate.

    Degenerate: a log ratio above 20 counts as 20, is reported as clipped, and has no gradient. Source: Kakade &
    Langford 2002; arXiv:1502.05477. Assumes that the policy stays near the recorded one.
    """

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        return -advantage * bounded_ratio(log_ratio), log_ratio > LARGEST_LOG_RATIO


@dataclass(frozen=True)
class Clip(TrustRegion):
    """-min(ratio * A, clip(ratio, 1 - low, 1 + high) * A): PPO (arXiv:1707.06347); high > low is DAPO's clip-higher.

    Degenerate: low = 1 and high = inf give the loss of Unclipped. Assumes recorded log-probabilities of the policy that
    acted.
    """

    low: float = 0.2
    high: float = 0.2

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        ratio = bounded_ratio(log_ratio)
        plain, clipped = ratio * advantage, ratio.clamp(1.0 - self.low, 1.0 + self.high) * advantage
        return -torch.minimum(plain, clipped), clipped < plain


@dataclass(frozen=True)
class DualClip(TrustRegion):
    """PPO's clip, and for A < 0 the loss is at most -ceiling * A (arXiv:1912.09729).

    Degenerate: ceiling = inf is Clip. Assumes recorded log-probabilities of the policy that acted.
    """

    low: float = 0.2
    high: float = 0.2
    ceiling: float = 3.0

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        loss, cut = Clip(self.low, self.high)(log_ratio, advantage, logp)
        bound = -self.ceiling * advantage
        over = (advantage < 0) & (loss > bound)
        return torch.where(over, bound, loss), cut | over


@dataclass(frozen=True)
class StopGradientWeight(TrustRegion):
    """-A * stop_gradient(clip(ratio, 1 - low, 1 + high)) * log pi: CISPO (arXiv:2506.13585).

    No decision loses its gradient. The paper has no lower bound; `low` of at least 1 removes it. Degenerate: low and
    high of 0 give the loss of NoTrust. Assumes recorded log-probabilities of the policy that acted.
    """

    low: float = 1.0
    high: float = 4.0

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss, whether the weight was clipped)."""
        ratio = bounded_ratio(log_ratio.detach())
        weight = ratio.clamp(1.0 - self.low, 1.0 + self.high)
        return -advantage * weight * logp, weight != ratio


@dataclass(frozen=True)
class SoftGate(TrustRegion):
    """-A * (4 / tau) * sigmoid(tau * (ratio - 1)): SAPO (arXiv:2511.20347).

    tau is `positive` where A > 0, else `negative`. The slope in the ratio, 4 s (1 - s), is 1 at ratio one and decays
    smoothly on both sides; a larger tau decays sooner. Nothing is clipped. Degenerate: at ratio 1 the gradient is
    REINFORCE's; as tau goes to 0 it is Unclipped's. Assumes recorded log-probabilities of the policy that acted.
    """

    positive: float = 1.0
    negative: float = 1.05

    def __post_init__(self) -> None:
        if not (0.0 < self.positive < math.inf and 0.0 < self.negative < math.inf):
            raise AssayError(f"{self}: positive and negative are temperatures. Use numbers above 0, for instance 1.0")

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        tau = torch.where(advantage > 0, self.positive, self.negative)
        gate = torch.sigmoid(tau * (bounded_ratio(log_ratio) - 1.0)) * 4.0 / tau
        return -advantage * gate, torch.zeros_like(advantage, dtype=torch.bool)
