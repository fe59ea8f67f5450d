"""Gates: conditions under which a target network is updated. Axes: N members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.core.record import State
from assay.core.slots import Gate


@dataclass(frozen=True)
class Rising(Gate):
    """Updates a member if its score is above its best so far: score_i > best_i, and then best_i <- score_i.

    The score is the parameter `standing` [N] of the model `model`, which a loss keeps up to date; the copy then
    always holds the best-scoring weights. The first score is always accepted. Of k independent scores of one
    unchanged policy the k-th is accepted with probability 1/k: noise is accepted too, ever more rarely.
    """

    model: str = "actor"

    def init(self) -> State:
        """Returns the state without a best score."""
        return {"best": None}

    def __call__(self, models: Mapping[str, Any], state: State) -> Tensor:
        """Returns the accepted members [N]; NaN is never accepted."""
        score: Tensor = models[self.model].standing.detach().clone()
        best = torch.full_like(score, -torch.inf) if state["best"] is None else state["best"].to(score)
        goes = score > best
        state["best"] = torch.where(goes, score, best)
        return goes
