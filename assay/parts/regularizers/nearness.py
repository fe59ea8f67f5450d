"""Pulls of a deterministic actor towards an action: the recorded one, or one near it.

Axes: B sequences, T decisions, A action dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import Regularizer, View
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class NearRecorded(OverTransitions, Regularizer):
    """coefficient * mean over dimensions of ((mu(s) - a) / half range)^2: TD3+BC's cloning (arXiv:2106.06860).

    Pulls towards another action inherit it and say which (`goal`), or how large a distance is (`size`). Assumes a
    deterministic actor: twice the loss of `LogLikelihood` over the number of dimensions. Degenerate: at the action it
    has no gradient.
    """

    coefficient: float = 1.0
    actor: str = model_name("actor")
    divergence: ClassVar[bool] = False  # zero at the recorded action, not at the reference

    def goal(self, batch: Experience, view: View, decided: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the actions that it pulls towards, and the weight [B, T] of each pull; None for 1."""
        return batch.now.action, None

    def size(self, gap: Tensor) -> Tensor:
        """Returns the distance [B, T] of gaps in half-ranges."""
        return gap.square().mean(-1)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squared distances in units of the range."""
        now, actor = batch.now, view.model(self.actor)
        decided = actor.decide(now.context)
        there, pull = self.goal(batch, view, decided)
        distance = self.size((decided - there) / actor.half_range) * now.weight
        distance = distance if pull is None else pull * distance
        metrics = {"distance": (distance.detach().sum(), now.num_decisions)}
        return Loss(self.coefficient * distance.sum(), self.count(batch), metrics)
