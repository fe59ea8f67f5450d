"""Weighted flow matching and denoising for path actors. Axes: B sequences, T decisions.

A path actor has `misfit(context, action, uniform)` [B, T]: the error of its regression (of a velocity, or of noise)
at a random point of the path to the action, drawn from `num_misfit_draws` uniform numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import Choice, Objective, View
from assay.parts.aggregations import OverDecisions


class Weight(Choice, Protocol):
    """Weights each recorded decision, [B, T], without gradient.

    Source: arXiv:2401.10700. Assumes weights of at least 0. Degenerate: weights of 1 clone the data.
    """

    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns the weights, not negative."""

    def shares(self, weight: Tensor) -> dict[str, Tensor]:
        """Returns of which decisions [B, T] to report the share, by its name; none by default."""
        return {}


@dataclass(frozen=True)
class Alike(Weight):
    """Weight 1 for every decision: behaviour cloning.

    Degenerate: columns outside of the mask have weight 1 too; `Denoising` leaves them out. Source: by definition.
    Assumes that all data are worth imitating.
    """

    def __call__(self, batch: Experience, view: View) -> Tensor:
        return torch.ones_like(batch.reward)


@dataclass(frozen=True)
class Denoising(OverDecisions, Objective):
    """loss = sum_bt weight(s, a) * misfit(s, a) / number of decisions.

    Its minimiser generates the recorded actions resampled by the weight: pi(a|s) ~ behaviour(a|s) * weight(s, a)
    (arXiv:2401.10700, theorem 3). A factor that depends on the state alone changes the step size only. Degenerate:
    weights of 0 everywhere give loss 0; the decisions are still counted. Assumes that the actor is a generative model
    of actions.
    """

    weight: Weight = Alike()
    actor: str = model_name("actor")
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "its weight is its credit, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        actor, count = view.model(self.actor), self.count(batch)
        uniform = view.uniform((*batch.mask.shape, actor.num_misfit_draws), tag=3)
        with torch.no_grad():
            weight = torch.where(batch.mask, self.weight(batch, view), 0.0)
        misfit = actor.misfit(batch.context, batch.action, uniform)
        metrics = {
            "misfit": ((misfit.detach() * batch.weight).sum(), count),
            "weight": (weight.sum(), count),
            "weightless": ((batch.mask & (weight == 0)).sum(), count),
            **{name: ((batch.mask & one).sum(), count) for name, one in self.weight.shares(weight).items()},
        }
        return Loss((weight * misfit).sum(), count, metrics)
