"""A value learned from what has come to its end, and from all of it. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import CriticLoss, View
from assay.ops import returns


@dataclass(frozen=True)
class FinishedValueLoss(CriticLoss):
    """coefficient * (V(s_t) - G_t)^2 / 2 over the decisions whose episode ended in this row, G_t the reward to go.

    Where the column `answer` is there it counts all decisions of the episode, also those of earlier windows, so that
    each is learned from exactly once: when its episode ends (T-PPO, arXiv:2506.15050). Unfinished rows give (0, 0).
    Rewards of earlier windows are not in the row: they come before every decision's future only if outcomes stand at
    the end, as they do for answers that are verified.
    """

    discount: float = 1.0
    coefficient: float = 1.0
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """1 on every decision that a terminal decision of its row follows, else 0."""
        told = told_of(batch)
        ended = (batch.terminal & told).to(batch.reward.dtype)
        return returns.discounted_returns(ended, told, batch.terminal, batch.truncated, 1.0)

    def count(self, batch: Experience) -> Tensor:
        """Number of such decisions."""
        return self.weigh(batch).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared error of the critic `value`."""
        weight, told = self.weigh(batch), told_of(batch)
        reward = batch.reward.detach() * told
        target = returns.discounted_returns(reward, told, batch.terminal, batch.truncated, self.discount)
        error = torch.where(weight > 0, view.model("value")(batch.context) - target, 0.0)
        metrics = {"value_error": (error.detach().square().sum(), weight.sum())}
        return Loss(0.5 * self.coefficient * error.square().sum(), weight.sum(), metrics)


def told_of(batch: Experience) -> Tensor:
    """All decisions of the episode that a row shows: the column `answer` where it is there, and the row's own; none in
    a row without a decision, which has left training.
    """
    answer = batch.extra.get("answer")
    return batch.mask if answer is None else (batch.mask | answer) & batch.mask.any(1, keepdim=True)
