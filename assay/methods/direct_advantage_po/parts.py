"""Step advantages from a classifier of partial answers, and their regression. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need, State
from assay.core.slots import Objective, Prepare, Scene, View


@dataclass(frozen=True)
class AsProbability(Prepare):
    """value <- sigmoid(value) at decisions, 0 elsewhere: the success probability of a critic that was fitted by
    cross-entropy. After the last decision, cut or not, nothing is left but the outcome.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})
    reads_shares: ClassVar[bool] = True

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `value`."""
        return experience.add({"value": experience.column("value").sigmoid() * experience.mask})


@dataclass(frozen=True)
class RegressSteps(Objective):
    """Mean over segments of (A - beta s)^2 / (2 beta): s sums the log-ratio to the reference over the segment's
    decisions, A is their common advantage.

    `RegressLogRatio` has the same residual for whole answers. At the reference the gradient is that of the policy
    gradient of A, for every beta. Degenerate: without segments every row is one.
    """

    beta: float = 0.5
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.REFERENCE})
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    together: ClassVar[str | None] = None
    first_order: ClassVar[bool] = False

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of segments with a decision."""
        return (in_segments(batch.mask.to(batch.reward.dtype), batch) > 0).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the sum over segments."""
        mask, advantage = batch.mask, batch.column("advantage").detach()
        size = in_segments(mask.to(advantage.dtype), batch)
        moved = in_segments((view.scored.logp - batch.column("logp_ref").detach()) * mask, batch)
        wanted = in_segments(advantage * mask, batch) / size.clamp(min=1)
        residual = torch.where(size > 0, wanted - self.beta * moved, 0.0)
        metrics = {"residual": (residual.detach().abs().sum(), (size > 0).sum())}
        return Loss(residual.square().sum() / (2.0 * self.beta), self.count(batch), metrics)


def in_segments(value_BT: Tensor, batch: Experience) -> Tensor:
    """Returns the sum over the columns of each segment of a row, [B, S]."""
    segment = torch.zeros_like(batch.mask, dtype=torch.long) if batch.segment is None else batch.segment
    num = int(segment.max()) + 1 if segment.numel() else 1
    return value_BT.new_zeros(len(value_BT), num).scatter_add(1, segment, value_BT)
