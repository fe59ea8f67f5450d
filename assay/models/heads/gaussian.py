"""Gaussian policies, and the default distribution of an action space. Axes: B, T, N rows, A actions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Ask, Body
from assay.core.spaces import Box, Context, MultiDiscrete, Spec
from assay.models.action_units import ActionUnits
from assay.models.heads.categorical import Categorical
from assay.models.heads.factored import Factored
from assay.models.heads.spaces import need_box
from assay.ops import distributions


class GaussianPolicy(nn.Module):
    """a = centre + half_range * x, x ~ N(mean(s), diag(exp(log_std))^2), with a state-independent standard deviation.

    Mean, deviation, density and entropy are of x, in half-ranges (`ActionUnits`).
    """

    def __init__(self, body: nn.Module, space: Box, initial_log_std: float) -> None:
        super().__init__()
        self.num_draws, self.body, self.units = space.size, body, ActionUnits(space)
        self.log_std = nn.Parameter(torch.full((space.size,), initial_log_std))

    def parameters_of(self, context: Context) -> tuple[Tensor, Tensor]:
        """Returns mean [..., A] and log standard deviation, [A] or [..., A], in half-ranges."""
        return self.body(context), self.log_std

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns mean + std * noise; the mean if `uniform` is None."""
        mean, log_std = self.parameters_of(context)
        noise = torch.zeros_like(mean) if uniform is None else distributions.normal_sample(uniform)
        scaled = mean + log_std.exp() * noise
        return self.units.of_task(scaled), distributions.normal_logp(scaled, mean, log_std)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-densities of the recorded decisions, and the entropy."""
        mean, log_std = self.parameters_of(batch.context)
        logp = distributions.normal_logp(self.units(batch.action), mean, log_std) * batch.mask
        entropy = None
        if Need.ENTROPY in needs:
            entropy = (log_std + 0.5 + distributions.HALF_LOG_TWO_PI).sum(-1) * batch.mask
        return Scored(logp, entropy)


@dataclass(frozen=True)
class Gaussian(ActorHead):
    """A Gaussian whose standard deviation is a parameter, for continuous actions; both in half-ranges."""

    initial_log_std: float = 0.0

    def on(self, body: Body, spec: Spec) -> nn.Module:
        space = need_box(spec, "a Gaussian actor")
        return GaussianPolicy(body.outputs(spec, Ask((space.size,), gain=0.01)), space, self.initial_log_std)


@dataclass(frozen=True)
class Distribution(ActorHead):
    """`Gaussian` for continuous actions, `Factored` for several choices, else `Categorical`."""

    initial_log_std: float = 0.0

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if isinstance(spec.action, Box):
            return Gaussian(self.initial_log_std).on(body, spec)
        return (Factored() if isinstance(spec.action, MultiDiscrete) else Categorical()).on(body, spec)
