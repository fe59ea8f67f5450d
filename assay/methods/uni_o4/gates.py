"""Gates: when a copy may follow its model. Axes: N members."""

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
    """A member goes when its score is above its best so far: score_i > best_i, and then best_i <- score_i.

    The score is the parameter `standing` [N] of the model named `model`, which some loss keeps up to date; a copy then
    only ever holds what scored best. The first score always goes. Of k independent scores of one unchanged policy the
    k-th goes with probability 1/k: noise is accepted too, ever more rarely.
    """

    model: str = "actor"

    def init(self) -> State:
        """No best yet."""
        return {"best": None}

    def __call__(self, models: Mapping[str, Any], state: State) -> Tensor:
        """[N]; scores that are no numbers do not go."""
        score: Tensor = models[self.model].standing.detach().clone()
        best = torch.full_like(score, -torch.inf) if state["best"] is None else state["best"].to(score)
        goes = score > best
        state["best"] = torch.where(goes, score, best)
        return goes
