"""The loss of a learned model of dynamics. Axes: B sequences, T decisions, M members, D numbers, K costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, View
from assay.parts.aggregations import OverTransitions


def followed(batch: Experience, num_costs: int) -> Tensor:
    """Returns what followed each decision: change of the observation, reward, costs [B, T, D + 1 + K]."""
    now = batch.now
    parts = [batch.after.context["observation"] - now.context["observation"], now.reward.unsqueeze(-1)]
    if num_costs:
        if now.cost is None:
            raise AssayError("a model of costs learns from costs, and the data have none. Use data with costs")
        parts.append(now.cost)
    return torch.cat(parts, -1)


@dataclass(frozen=True)
class DynamicsLikelihood(OverTransitions, CriticLoss):
    """loss = sum over members of ((y - mean) / deviation)^2 / 2 + log deviation, y the change of the observation, the
    reward and the costs, minus log p(end). A time limit is no end.

    Degenerate: members that began alike stay alike: all see all rows. Source: arXiv:1805.12114. Assumes a critic with
    the head `Dynamics`.
    """

    dynamics: str = model_name("dynamics")
    breaks: ClassVar[dict[str, str]] = {"ends": "observations after a terminal step are real; nothing bootstraps"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the negative log-likelihoods, without their constants, summed over members and numbers."""
        now, model = batch.now, view.model(self.dynamics)
        mean, log_std, end = model.predicted(now.context, now.action)
        error = mean - followed(batch, model.num_costs).detach()
        missed = (0.5 * (error / log_std.exp()).square() + log_std).sum(-1)
        ended = now.terminal.to(end.dtype).expand_as(end)
        missed = missed + torch.nn.functional.binary_cross_entropy_with_logits(end, ended, reduction="none")
        squared = (error.detach().square().mean((0, -1)) * now.weight).sum()
        return Loss((missed * now.weight).sum(), self.count(batch), {"model_error": (squared, now.num_decisions)})
