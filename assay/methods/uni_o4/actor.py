"""Several Gaussian policies side by side, of which one acts. Axes: N members, B, T, R rows, A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorSpec
from assay.core.spaces import Box, Context, Spec
from assay.models.bodies.perceptron import Ensemble, feature_size, features
from assay.models.bounded import bounds
from assay.models.mlp import need_box
from assay.ops import distributions


class GaussianCommittee(nn.Module):
    """pi_i(a|s) = N(centre + half range * tanh(f_i(s)), half range * exp(log_std_i)), i = 1..N.

    The member that a context names in `member` decides there; elsewhere the one with the highest `standing`, a score
    that no policy loss touches. Every parameter has the members along its first axis.
    """

    middle: Tensor
    reach: Tensor

    def __init__(self, num: int, num_inputs: int, space: Box, hidden: Sequence[int], initial_log_std: float) -> None:
        super().__init__()
        self.num_members, self.num_draws = num, space.size
        self.net = Ensemble(num, num_inputs, space.size, hidden)
        self.log_std = nn.Parameter(torch.full((num, space.size), initial_log_std))
        self.standing = nn.Parameter(torch.zeros(num))
        low, high = bounds(space)
        self.register_buffer("middle", (high + low) / 2)
        self.register_buffer("reach", (high - low) / 2)

    def means(self, context: Context) -> Tensor:
        """The mean of every member, [N, ..., A]."""
        rows = features(context)
        latent = self.net(rows.flatten(0, -2)).view(self.num_members, *rows.shape[:-1], self.num_draws)
        return self.middle + self.reach * latent.tanh()

    def parameters_of(self, context: Context) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of whoever decides, [..., A] both."""
        means, scale = self.means(context), self.log_std + self.reach.log()
        if "member" not in context:
            best = self.standing.argmax()
            return means[best], scale[best].expand_as(means[0])
        member = context["member"]
        index = member.unsqueeze(-1).expand(*member.shape, self.num_draws).unsqueeze(0)
        return means.gather(0, index).squeeze(0), scale[member]

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """mean + std * noise; the mean where `uniform` is None."""
        mean, log_std = self.parameters_of(context)
        action = mean if uniform is None else mean + log_std.exp() * distributions.normal_sample(uniform)
        return action, distributions.normal_logp(action, mean, log_std)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-densities of the recorded decisions under the members that decide."""
        mean, log_std = self.parameters_of(batch.context)
        logp = distributions.normal_logp(batch.action, mean, log_std) * batch.mask
        entropy = (log_std + 0.5 + distributions.HALF_LOG_TWO_PI).sum(-1) * batch.mask
        return Scored(logp, entropy if Need.ENTROPY in needs else None)

    def all_logp(self, batch: Experience) -> Tensor:
        """Log-densities of the recorded decisions under every member, [N, B, T], zero where masked."""
        scale = (self.log_std + self.reach.log()).view(self.num_members, 1, 1, self.num_draws)
        return distributions.normal_logp(batch.action, self.means(batch.context), scale) * batch.mask


@dataclass(frozen=True)
class Committee(ActorSpec):
    """`num` Gaussian policies for bounded continuous actions, of which the one with the best standing acts."""

    num: int = 4
    hidden: tuple[int, ...] = (64, 64)
    initial_log_std: float = -0.5

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        space = need_box(spec, "a committee")
        return GaussianCommittee(self.num, feature_size(spec), space, self.hidden, self.initial_log_std)
