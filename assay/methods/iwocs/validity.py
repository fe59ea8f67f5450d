"""Where a Q-network has data: a reconstruction of what it was trained on. Axes: B, T, N rows, D numbers, A actions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, CriticSpec, View
from assay.core.spaces import Context, Spec
from assay.models.bodies.perceptron import feature_size, features, perceptron
from assay.models.heads.spaces import need_discrete
from assay.parts.aggregations import OverTransitions

FAST = 10.0
"""Factor of the log-limit's step size: errors span several powers of ten, weights do not."""

FLOOR = 1e-4
"""Smaller errors count as this one: below it the optimizer's noise decides."""


class Coder(nn.Module):
    """Reconstructs s through a bottleneck, once for each action; (s, a) is valid where the mean squared error is at
    most `limit`.
    """

    def __init__(self, num_inputs: int, num_actions: int, size: int) -> None:
        super().__init__()
        self.shape, hidden = (num_actions, num_inputs), (4 * size,)
        self.encode = perceptron(num_inputs, size, hidden)
        self.decode = perceptron(size, num_actions * num_inputs, hidden)
        self.log_limit = nn.Parameter(torch.zeros(()))

    @property
    def limit(self) -> Tensor:
        """Returns the largest error of a valid (s, a)."""
        return (FAST * self.log_limit).exp()

    def errors(self, context: Context) -> Tensor:
        """Returns the mean squared error of each action's reconstruction, [..., A]."""
        seen = features(context)
        found = self.decode(self.encode(seen).tanh()).unflatten(-1, self.shape)
        return (found - seen.unsqueeze(-2)).square().mean(-1)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns the error of the recorded action's reconstruction, [...]."""
        return self.errors(context).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def valid(self, context: Context) -> Tensor:
        """Returns whether (s, a) looks like the data, bool [..., A]."""
        return self.errors(context) <= self.limit.clamp(min=FLOOR)


@dataclass(frozen=True)
class Coding(CriticSpec):
    """A coder with a bottleneck of `size` numbers."""

    size: int = 16

    def build(self, spec: Spec) -> nn.Module:
        """Returns the module for this task."""
        return Coder(feature_size(spec), need_discrete(spec, "Coding()").n, self.size)


@dataclass(frozen=True)
class FitCoder(OverTransitions, CriticLoss):
    """e(s, a) + max(share * u, (share - 1) * u),  u = log e(s, a) - log limit, without gradient into e in the second
    term.

    e is the reconstruction's error at recorded decisions. The second term's minimum is the quantile `share` of log e:
    so much of the data is valid.
    """

    share: float = 0.95
    coder: str = model_name("coder")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the sum over decisions."""
        now, coder = batch.now, view.model(self.coder)
        error = coder(now.context, now.action)
        above = error.detach().clamp(min=FLOOR).log() - coder.limit.log()
        loss = (error + torch.maximum(self.share * above, (self.share - 1.0) * above)) * now.weight
        metrics = {"valid_share": (((above <= 0) * now.weight).sum(), now.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)
