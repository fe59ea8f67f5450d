"""A value trained on all decisions of finished episodes. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import Aggregation, Target, View
from assay.ops import returns
from assay.parts.critics.td import Td
from assay.parts.predictions import OfState


def told_of(batch: Experience) -> Tensor:
    """Marks all decisions of the episode in a row: those of the column `answer`, if set, and the row's own; none after
    an infrastructure fault. A row whose own decisions are all in the dropped tail still has those of its answer.
    """
    answer, fault = batch.extra.get("answer"), batch.extra.get("infra_fault", ~batch.mask.any(1))
    return batch.mask if answer is None else (batch.mask | answer) & ~fault.unsqueeze(1)


@dataclass(frozen=True)
class Finished(Aggregation):
    """Counts the decisions whose episode ended in this row.

    With the column `answer` these are all decisions of the episode, including earlier windows, so that each is
    trained on exactly once: when its episode ends (T-PPO, arXiv:2506.15050). Degenerate: unfinished rows give (0, 0).
    """

    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """Returns 1 on every decision that a terminal decision of its row follows, else 0."""
        told = told_of(batch)
        ended = (batch.terminal & told).to(batch.reward.dtype)
        return returns.discounted_returns(ended, told, batch.terminal, batch.truncated, 1.0)

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of such decisions."""
        return self.weigh(batch).sum()


@dataclass(frozen=True)
class RewardToGo(Target):
    """y = G_t, the reward from here to the end of the row, over all decisions of the episode in the row.

    Assumes that the outcome is at the end, as for verified answers: rewards of earlier windows are not in the row.
    """

    discount: float = 1.0

    def rows(self, batch: Experience) -> Experience:
        """Returns all decisions."""
        return batch

    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T]."""
        told = told_of(batch)
        reward = batch.reward.detach() * told
        return returns.discounted_returns(reward, told, batch.terminal, batch.truncated, self.discount)


FINISHED_VALUE = Td(RewardToGo(), of=OfState(), aggregate=Finished())
"""(V(s_t) - G_t)^2 / 2 over the decisions of finished episodes."""
