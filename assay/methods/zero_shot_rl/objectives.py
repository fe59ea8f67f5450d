"""The policy of forward-backward representations for continuous actions. Axes: R decisions, A actions, D numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import Objective, View
from assay.core.spaces import Box
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class MaximizeMeasure(OverTransitions, Objective):
    """-min_k F_k(s, pi_z(s), z) . z, with gradient into pi_z alone (arXiv:2209.14935); for continuous actions.

    Only the gradient is that of this loss: the reported value is slope times actions. The metric `q` is min_k F_k .
    z.
    """

    actor: str = model_name("actor")
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is F . z, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the slope of F . z at the policy's actions, times the actions: no gradient for F and B."""
        now, model = batch.now, view.model(self.actor)
        if not isinstance(model.space, Box):
            raise AssayError("MaximizeMeasure is for continuous actions. Drop it for discrete ones, chosen by F . z")
        z = model.tasks(now.context["goal"], view.uniform((*now.mask.shape, model.size + 1), tag=3))
        action = model.decide(now.context, z)
        with torch.enable_grad():
            given = action.detach().requires_grad_()
            value = (model.forward_of(now.context, given, z) * z).sum(-1).amin(0)
            (slope,) = torch.autograd.grad((value * now.weight).sum(), given)
        metrics = {"q": ((value.detach() * now.weight).sum(), now.num_decisions)}
        return Loss(-(slope * action).sum(), self.count(batch), metrics)
