"""Forward-backward representations: losses of successor measures for every task z at once.

Axes: K heads, R decisions of the batch, N action samples, D numbers. The model `actor` has F, B and pi_z, `target` is
its target network. Rewards are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, Objective, View
from assay.core.spaces import Box
from assay.models.heads.forward_backward import ForwardBackward
from assay.parts.aggregations import OverTransitions


class MeasuredRows:
    """A batch's decisions as rows [R], contexts `now` and `after`, each with its task z: the same for all terms."""

    def __init__(self, batch: Experience, view: View, name: str = "actor") -> None:
        self.batch, self.view, self.model = batch, view, cast(ForwardBackward, view.model(name))
        self.now, self.after = (
            {name: column.flatten(0, 1) for name, column in side.context.items()} for side in (batch.now, batch.after)
        )
        self.action, self.weight = batch.now.action.flatten(0, 1), batch.now.weight.flatten()

    @cached_property
    def z(self) -> Tensor:
        """Returns tasks [R, D], without gradient."""
        uniform = self.view.uniform((*self.batch.now.mask.shape, self.model.size + 1), tag=3).flatten(0, 1)
        return self.model.tasks(self.now["goal"], uniform)

    @cached_property
    def back(self) -> Tensor:
        """Returns B of the next states, [R, D]."""
        return self.model.backward_of(self.after["achieved"])

    def others(self) -> Tensor:
        """Returns the weight of each pair (i, j), [R, R]; 0 on the diagonal: sums are means over the other rows."""
        pairs = self.weight.unsqueeze(1) * self.weight - torch.diag(self.weight)
        return pairs / (self.weight.sum() - 1.0).clamp(min=1.0)

    def samples(self, num: int) -> Tensor | None:
        """Returns actions [R, num + 2, A]: uniform, the policy's, the recorded one; None if all can be listed."""
        space = self.model.space
        if not isinstance(space, Box):
            return None
        low, high = (self.action.new_tensor(bound) for bound in (space.low, space.high))
        uniform = self.view.uniform((*self.batch.now.mask.shape, num, space.size), tag=4).flatten(0, 1)
        own = self.model.decide(self.now, self.z).detach()
        return torch.cat([low + (high - low) * uniform, torch.stack([own, self.action], 1)], 1)


class OfPairs:
    """A term over pairs of a decision and a next state of the batch, which therefore stays whole."""

    together: ClassVar[str | None] = "source"
    breaks: ClassVar[dict[str, str]] = {
        "targets": "next states are what is predicted: B(s') is trained",
        "ends": "it is about states, however the step that led there ended",
    }


@dataclass(frozen=True)
class MeasureLoss(OfPairs, OverTransitions, CriticLoss):
    """sum_k mean_{i != j} (M_k[i, j] - discount T[i, j])^2 / 2 - mean_i M_k[i, i]

        M_k[i, j] = F_k(s_i, a_i, z_i) . B(s'_j);   T[i, j] = mean_k F'_k(s'_i, pi_z(s'_i), z_i) . B'(s'_j)

    F' and B' are those of `target`; T is 0 after a terminal step. Its minimum is the density of future states relative
    to the data's (arXiv:2103.07945). The diagonal is left out of the square, where it would bias the estimate. `mass`,
    the total measure, is 1 / (1 - discount) at convergence. Degenerate: a single decision has no pairs.
    """

    discount: float = 0.98
    actor: str = model_name("actor")
    target: str = model_name("target")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squares over pairs minus the diagonal."""
        rows, target, now = MeasuredRows(batch, view, self.actor), view.model(self.target), batch.now
        after, z, others = rows.after, rows.z, rows.others()
        with torch.no_grad():
            noise = view.uniform((*now.mask.shape, rows.model.num_next_draws), tag=5).flatten(0, 1)
            ahead = target.forward_of(after, rows.model.decide(after, z, noise), z)
            onward = (ahead @ target.backward_of(after["achieved"]).T).mean(0)
            onward = self.discount * onward * (~now.terminal).flatten().unsqueeze(1)
        measure = rows.model.forward_of(rows.now, rows.action, z) @ rows.back.T
        squares = 0.5 * ((measure - onward).square() * others).sum()
        arrived = (measure.diagonal(dim1=1, dim2=2) * rows.weight).sum()
        metrics = {"mass": ((measure.detach().mean(0) * others).sum(), now.num_decisions)}
        return Loss(squares - arrived, self.count(batch), metrics)


@dataclass(frozen=True)
class Orthonormal(OfPairs, OverTransitions, CriticLoss):
    """weight * (mean_{i != j} (B(s'_i) . B(s'_j))^2 - 2 mean_i |B(s'_i)|^2): least where E[B B^T] is the identity."""

    weight: float = 1.0
    actor: str = model_name("actor")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squares over pairs minus the lengths."""
        rows = MeasuredRows(batch, view, self.actor)
        back = rows.back
        loss = ((back @ back.T).square() * rows.others()).sum() - 2.0 * (back.square().sum(-1) * rows.weight).sum()
        return Loss(self.weight * loss, self.count(batch))


@dataclass(frozen=True)
class MaximizeMeasure(OverTransitions, Objective):
    """-min_k F_k(s, pi_z(s), z) . z, with gradient into pi_z alone (arXiv:2209.14935); for continuous actions.

    Only the gradient is that of this loss: the reported value is slope times actions. `q` is min_k F_k . z.
    """

    actor: str = model_name("actor")
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is F . z, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the slope of F . z at the policy's actions, times the actions from the middle: no gradient for F and
        B.
        """
        rows = MeasuredRows(batch, view, self.actor)
        if not isinstance(rows.model.space, Box):
            raise AssayError("MaximizeMeasure is for continuous actions. Drop it for discrete ones, chosen by F . z")
        action = rows.model.decide(rows.now, rows.z)
        with torch.enable_grad():
            given = action.detach().requires_grad_()
            value = (rows.model.forward_of(rows.now, given, rows.z) * rows.z).sum(-1).amin(0)
            (slope,) = torch.autograd.grad((value * rows.weight).sum(), given)
        metrics = {"q": ((value.detach() * rows.weight).sum(), batch.now.num_decisions)}
        return Loss(-(slope * (action - rows.model.centre)).sum(), self.count(batch), metrics)
