"""Token weights from a model of outcomes, and means over chosen answers. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need
from assay.core.slots import Aggregation, CreditWeight
from assay.parts.predictions import OfState


@dataclass(frozen=True)
class MeanOfAnswer(OfState):
    """The mean of a state critic's outputs over the row's decisions, the same at each of them."""

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        """Returns means [B, T]."""
        score: Tensor = critic(rows.context)
        mean = (score * rows.mask).sum(1) / rows.mask.sum(1).clamp(min=1)
        return mean.unsqueeze(1).expand_as(score)


@dataclass(frozen=True)
class TokenWeights(CreditWeight):
    """clamp(2 sigmoid(m_t) - 1, 0, 1) where the advantage is positive, `wrong` * clamp(1 - 2 sigmoid(m_t), 0, 1) where
    it is not; m_t is the mean of the critic's outputs at the decisions up to t, each before its token was seen.

    At every decision one of the two is 0. Degenerate: a critic of zeros, such as a fresh head, gives no credit at all.
    """

    wrong: float = 0.5
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})
    reads_shares: ClassVar[bool] = True

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        """Returns the weight of each decision, [B, T]."""
        mask = experience.mask
        running = (experience.column("value") * mask).cumsum(1) / mask.cumsum(1).clamp(min=1)
        lean = 2.0 * running.sigmoid() - 1.0
        return torch.where(advantage_BT > 0, lean.clamp(min=0.0), self.wrong * (-lean).clamp(min=0.0))


@dataclass(frozen=True)
class MeanOfChosen(Aggregation):
    """The mean over all decisions of rows whose `chosen` is `sign`: right and wrong answers are counted apart."""

    sign: float = 1.0
    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """Returns the mask of these rows."""
        return batch.weight * (batch.column("chosen") == self.sign).unsqueeze(1)

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of their decisions."""
        return self.weigh(batch).sum()
