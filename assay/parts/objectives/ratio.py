"""Levels of the importance ratio: decision, sequence, product. Axes: B sequences, T decisions.

All return log ratios [B, T], zero where masked, with gradient into `logp` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.core.metrics import Metric
from assay.core.record import Experience
from assay.core.slots import RatioLevel
from assay.ops import groups

MOST_CLIPPED = Metric(
    name="most_clipped",
    most=0.5,
    guard="few clipped",
    text="{value:.0%} of the decisions of a minibatch were clipped at step {step}: ratios of whole answers leave the "
    "range at once, and most of the batch teaches nothing. Lower the learning rate, take fewer minibatches or epochs, "
    "or widen the range (--set trust.low=..., trust.high=...)",
    largest_of="clipped",
)
"""The largest share of clipped decisions in an update; the mean over a step hides it, since its first update has ratio
1."""


@dataclass(frozen=True)
class TokenRatio(RatioLevel):
    """log pi(a_t) - log pi_old(a_t) of each decision. Degenerate: 0 for the policy that acted.

    Source: arXiv:1707.06347. Assumes recorded log-probabilities.
    """

    together: ClassVar[str | None] = None

    def __call__(self, logp_BT: Tensor, batch: Experience) -> Tensor:
        return (logp_BT - batch.logp.detach()) * batch.mask


@dataclass(frozen=True)
class SequenceRatio(RatioLevel):
    """Geometric mean over the episode's decisions: (pi(y) / pi_old(y))^(1/|y|), the same for all of them.

    GSPO, arXiv:2507.18071, eq. 7. Each decision's gradient is an equal share of the episode's. Degenerate: one decision
    per episode is TokenRatio; a row without a decision gets 0. Assumes that an outcome belongs to the whole sequence.
    """

    together: ClassVar[str | None] = "episode"
    watches: ClassVar[tuple[Metric, ...]] = (MOST_CLIPPED,)

    def __call__(self, logp_BT: Tensor, batch: Experience) -> Tensor:
        log_ratio = (logp_BT - batch.logp.detach()) * batch.mask
        length = groups.over_episode(batch.mask.sum(1), batch).clamp(min=1)
        return (groups.over_episode(log_ratio.sum(1), batch) / length).unsqueeze(1) * batch.mask


@dataclass(frozen=True)
class ProductRatio(RatioLevel):
    """The ratio of the whole episode: the exact importance weight of an outcome, with its full variance.

    Degenerate: one decision per episode is TokenRatio. Source: importance sampling, Precup et al. 2000. Assumes
    recorded log-probabilities of all decisions.
    """

    together: ClassVar[str | None] = "episode"
    breaks: ClassVar[dict[str, str]] = {
        "first_order": "every decision has the product: length times REINFORCE's gradient; aggregate by SequenceMean"
    }

    def __call__(self, logp_BT: Tensor, batch: Experience) -> Tensor:
        log_ratio = (logp_BT - batch.logp.detach()) * batch.mask
        return groups.over_episode(log_ratio.sum(1), batch).unsqueeze(1) * batch.mask


def clipped_share(cut: Tensor, among: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns the metric `clipped`: how many of those marked by `among` are cut."""
    return {"clipped": ((cut & among).sum(), among.sum())}


def of_rows(log_ratio_BT: Tensor, batch: Experience) -> Tensor:
    """Returns the log ratio of each row, [B], of a level that has the same number for all decisions of a row."""
    return (log_ratio_BT * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)
