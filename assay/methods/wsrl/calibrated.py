"""Cal-QL: conservative values that are not below the recorded returns. Axes: B, T = 2 columns, N critics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Scene
from assay.parts.critics.conservative import Conservative
from assay.parts.sources.logged import Logged, at

RETURN = "recorded_return"


def recorded_returns(columns: dict[str, Tensor], discount: float) -> Tensor:
    """Returns sum_k discount^k r_t+k to the end of the row's episode [N, 2]; 0 in the second column.

    Rows are in the order in which they were recorded; a truncated episode counts no reward after its last row.
    """
    reward, end = columns["reward"][:, 0].double(), (columns["terminal"] | columns["truncated"])[:, 0]
    found, onward = torch.zeros_like(reward), 0.0
    for row in range(len(reward) - 1, -1, -1):
        onward = float(reward[row]) + (0.0 if bool(end[row]) else discount * onward)
        found[row] = onward
    return torch.stack((found, torch.zeros_like(found)), 1).to(columns["reward"].dtype)


@dataclass(frozen=True)
class LoggedWithReturns(Logged):
    """`Logged` with the column `recorded_return`: the discounted return of the recorded episode from here."""

    discount: float = 0.95
    writes: ClassVar[tuple[str, ...]] = (RETURN,)

    def init(self, scene: Scene) -> State:
        """Returns the datasets with their returns."""
        state = super().init(scene)
        contents = state["contents"]
        contents.columns = tuple(
            {**columns, RETURN: recorded_returns(columns, self.discount)} for columns in contents.columns
        )
        return state

    def rows(self, logs: Sequence[dict[str, Tensor]], index: Sequence[Tensor]) -> Experience:
        """Returns the rows at these indices of each dataset as one batch."""
        parts = [at(columns[RETURN], places) for columns, places in zip(logs, index, strict=True)]
        return super().rows(logs, index).add({RETURN: torch.cat(parts, index[0].dim() - 1)})


@dataclass(frozen=True)
class Calibrated(Conservative):
    """`Conservative` with max(Q_i(s, a'), G) for Q_i of the policy's proposals a': Cal-QL (arXiv:2303.05479).

    G is the return of the recorded episode from s on, which estimates the behaviour policy's value: values are not
    pushed below it, so that the online phase need not unlearn them. Uniform proposals count as they are. Where G is
    larger, the proposal gets no gradient; G = -infinity is CQL.
    """

    reads: ClassVar[tuple[str, ...]] = (RETURN,)

    def counted(self, values: Tensor, now: Experience) -> Tensor:
        """Returns the values [N, B, T, 3 num] with the policy's own, the first two thirds, at least G."""
        least = now.column(RETURN).unsqueeze(-1)
        return torch.cat((torch.maximum(values[..., : -self.num], least), values[..., -self.num :]), -1)
