"""An offline dataset with the return of each recorded decision. Axes: N rows, B sequences, T = 2 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Scene
from assay.parts.sources.logged import Logged, at
from assay.parts.sources.scales import returns_to_go

RETURN = "recorded_return"


def recorded_returns(columns: dict[str, Tensor], discount: float) -> Tensor:
    """Returns `returns_to_go` of the recorded rows [N, 2]; 0 in the second column."""
    found = returns_to_go(columns["reward"][:, 0], (columns["terminal"] | columns["truncated"])[:, 0], discount)
    return torch.stack((found, torch.zeros_like(found)), 1).to(columns["reward"].dtype)


@dataclass(frozen=True)
class LoggedWithReturns(Logged):
    """`Logged` with the column `recorded_return`: the discounted return of the recorded episode from here.

    Source: by definition. Assumes rows in the order of recording. Degenerate: an episode that the data break off has
    the return of its recorded part.
    """

    discount: float = 0.95
    writes: ClassVar[Mapping[str, str]] = {RETURN: "BT: return of the recorded episode from here on"}

    def init(self, scene: Scene) -> State:
        state = super().init(scene)
        contents = state["contents"]
        contents.columns = tuple(
            {**columns, RETURN: recorded_returns(columns, self.discount)} for columns in contents.columns
        )
        return state

    def rows(self, logs: Sequence[dict[str, Tensor]], index: Sequence[Tensor]) -> Experience:
        parts = [at(columns[RETURN], places) for columns, places in zip(logs, index, strict=True)]
        return super().rows(logs, index).add({RETURN: torch.cat(parts, index[0].dim() - 1)})
