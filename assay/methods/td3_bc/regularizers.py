"""Regularizers of an actor's own action towards the recorded one. Axes: B sequences, T decisions, A dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import Regularizer, View
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class NearRecorded(OverTransitions, Regularizer):
    """coefficient * mean over dimensions of ((mu(s) - a) / half range)^2: TD3+BC's cloning (arXiv:2106.06860).

    Assumes a deterministic actor: twice the loss of `LogLikelihood` over the number of dimensions.
    """

    coefficient: float = 1.0
    actor: str = model_name("actor")
    divergence: ClassVar[bool] = False  # zero at the recorded action, not at the reference

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squared distances in units of the range."""
        now, actor = batch.now, view.model(self.actor)
        distance = ((actor.decide(now.context) - now.action) / actor.half_range).square().mean(-1) * now.weight
        metrics = {"distance": (distance.detach().sum(), now.num_decisions)}
        return Loss(self.coefficient * distance.sum(), self.count(batch), metrics)
