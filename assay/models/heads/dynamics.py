"""An ensemble of Gaussian models of what follows a decision. Axes: N rows, M members, D numbers of an observation, K.

Predicted numbers stand in this order: the change of the observation, the reward, the costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body, CriticHead, Imagined
from assay.core.spaces import Box, Context, Spec
from assay.models.action_units import ActionUnits
from assay.models.heads.spaces import need_bounds
from assay.ops.distributions import normal_sample

LEAST, MOST = -6.0, 1.0
"""Bounds of the predicted log standard deviations."""


class DynamicsEnsemble(nn.Module):
    """M Gaussians N(mean_i(s, a), deviation_i(s, a)^2) of change, reward and costs, and the log odds that the episode
    ends. Actions are clipped to their bounds, as the task does. Deviations of reward and costs are one number each: one
    that depends on (s, a) explains a cost of 1 as an accident of a mean of 0.

    A sampled step takes one member, one row at a time, and draws the next observation from it; reward and costs are
    that member's means, and an episode ends where its log odds are above 0: a small chance of an end at every step
    would end most long episodes.
    """

    def __init__(self, body: Body, spec: Spec, members: int) -> None:
        super().__init__()
        space = need_bounds(spec, "a model of dynamics")
        if not isinstance(spec.observation, Box) or spec.goal is not None:
            raise AssayError(
                f"a model of dynamics predicts observations that are vectors without a goal, the task has "
                f"{spec.observation}. Use a method without a model, such as iql"
            )
        self.size, self.num_costs, self.members = spec.observation.size, spec.num_costs, members
        self.num = self.size + 1 + self.num_costs
        self.units, self.num_step_draws = ActionUnits(space), 1 + self.size
        ask = Ask((self.num + self.size + 1,), activation=nn.SiLU, members=members, action=True)
        self.net = body.outputs(spec, ask)
        self.spread = nn.Parameter(torch.zeros(members, self.num - self.size))

    def predicted(self, context: Context, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns each member's means and log standard deviations [M, ..., D + 1 + K], and log odds of an end [M, ...].
        """
        outputs: Tensor = self.net(context, self.units(action).clamp(-1.0, 1.0), None)
        mean, own, end = outputs.split((self.num, self.size, 1), -1)
        plain = self.spread.view(self.members, *[1] * (own.dim() - 2), -1)
        spread = torch.cat((own, plain.expand(*own.shape[:-1], -1)), -1)
        return mean, LEAST + 0.5 * (MOST - LEAST) * (spread.tanh() + 1.0), end.squeeze(-1)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns the means, [M, D + 1 + K, ...]."""
        return self.predicted(context, action)[0].movedim(-1, 1)

    def imagined(self, context: Context, action: Tensor, uniform: Tensor | None) -> Imagined:
        """Returns a step of N rows: of one member each, or of the mean of all."""
        mean, log_std, end = self.predicted(context, action)
        if uniform is None:
            found, ends = mean.mean(0), end.mean(0)
        else:
            row = torch.arange(len(uniform), device=uniform.device)
            member = (uniform[:, 0] * self.members).long().clamp(max=self.members - 1)
            found, ends, noise = mean[member, row], end[member, row], normal_sample(uniform[:, 1:])
            found = found + torch.nn.functional.pad(log_std[member, row, : self.size].exp() * noise,
                                                    (0, 1 + self.num_costs))
        change, reward, cost = found.split((self.size, 1, self.num_costs), -1)
        costs = cost.clamp(min=0.0) if self.num_costs else None
        return Imagined(context["observation"] + change, reward.squeeze(-1), costs, ends > 0.0)


@dataclass(frozen=True)
class Dynamics(CriticHead):
    """A probabilistic model of dynamics, reward, costs and ends: `members` Gaussians (arXiv:1805.12114)."""

    members: int = 5

    def on(self, body: Body, spec: Spec) -> nn.Module:
        return DynamicsEnsemble(body, spec, self.members)
