"""Teaching a path actor what to generate: flow matching and denoising, weighted. Axes: B sequences, T decisions.

A path actor says how far it is from generating an action: `misfit(context, action, uniform)` [B, T] is the error of its
own regression (of a velocity, or of noise) at a random point of the way, drawn from `num_misfit_draws` numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import Choice, Objective, View


class Weight(Choice, Protocol):
    """How much each recorded decision counts, [B, T], without gradient."""

    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Not negative."""


@dataclass(frozen=True)
class Alike(Weight):
    """Every decision counts 1: cloning."""

    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Ones."""
        return torch.ones_like(batch.reward)


@dataclass(frozen=True)
class Denoising(Objective):
    """loss = sum_bt weight(s, a) * misfit(s, a) / number of decisions.

    Its minimiser generates the record's actions resampled by the weight: pi(a|s) ~ behaviour(a|s) * weight(s, a)
    (arXiv:2401.10700, theorem 3). A factor that depends on the state alone changes nothing but the step size.
    Degenerate: weights of 0 everywhere give loss 0; they are counted all the same.
    """

    weight: Weight = Alike()
    actor: str = model_name("actor")
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "its weight is its credit, not the column `advantage`"}

    def count(self, batch: Experience) -> Tensor:
        """Number of decisions."""
        return batch.num_decisions

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Weighted squared errors."""
        actor, count = view.model(self.actor), self.count(batch)
        uniform = view.uniform((*batch.mask.shape, actor.num_misfit_draws), tag=3)
        with torch.no_grad():
            weight = torch.where(batch.mask, self.weight(batch, view), 0.0)
        misfit = actor.misfit(batch.context, batch.action, uniform)
        metrics = {
            "misfit": ((misfit.detach() * batch.weight).sum(), count),
            "weight": (weight.sum(), count),
            "weightless": ((batch.mask & (weight == 0)).sum(), count),
        }
        return Loss((weight * misfit).sum(), count, metrics)
