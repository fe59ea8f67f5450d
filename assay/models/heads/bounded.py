"""Policies for bounded continuous actions: squashed Gaussian, deterministic. Axes: B, T, N rows, A."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Ask, Body
from assay.core.spaces import Box, Context, Spec
from assay.models.heads.spaces import need_box, register_bounds
from assay.ops import distributions


class BoundedPolicy(nn.Module):
    """A policy of actions in centre +- half_range."""

    centre: Tensor
    half_range: Tensor

    def __init__(self, body: nn.Module, space: Box) -> None:
        super().__init__()
        self.num_draws, self.body = space.size, body
        register_bounds(self, space)

    def squash(self, latent: Tensor) -> Tensor:
        """Returns centre + half_range * tanh(x)."""
        return self.centre + self.half_range * latent.tanh()


class SquashedPolicy(BoundedPolicy):
    """a = centre + half_range * tanh(x), x ~ N(mean(s), std(s)); Haarnoja et al. 2018 (arXiv:1812.05905).

    The density is that of tanh(x), per half-range, as in the authors' code: an entropy means the same in any units.
    """

    def parameters_of(self, context: Context) -> tuple[Tensor, Tensor]:
        """Returns mean and log standard deviation of x; the latter clamped to [-20, 2] as in the authors' code."""
        mean, log_std = self.body(context).chunk(2, -1)
        return mean, log_std.clamp(-20.0, 2.0)

    def sample(self, context: Context, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Returns a reparameterised action and its log-density, both with gradient."""
        mean, log_std = self.parameters_of(context)
        noise = distributions.normal_sample(uniform)
        latent = mean + log_std.exp() * noise
        # (x - mean) / std is the noise itself: one density less to differentiate through.
        density = (-0.5 * noise.square() - distributions.HALF_LOG_TWO_PI) - log_std
        return self.squash(latent), (density - distributions.log_tanh_slope(latent)).sum(-1)

    def log_density(self, latent: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        """Returns log N(x) - sum log |d tanh(x) / dx|."""
        return distributions.normal_logp(latent, mean, log_std) - distributions.log_tanh_slope(latent).sum(-1)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns a sampled action, or the squashed mean if `uniform` is None."""
        if uniform is not None:
            return self.sample(context, uniform)
        mean, log_std = self.parameters_of(context)
        return self.squash(mean), self.log_density(mean, mean, log_std)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-densities of recorded actions; those at the bounds are moved inside by 1e-6 of the range."""
        mean, log_std = self.parameters_of(batch.context)
        inside = ((batch.action - self.centre) / self.half_range).clamp(-1 + 1e-6, 1 - 1e-6)
        logp = self.log_density(inside.atanh(), mean, log_std) * batch.mask
        entropy = -logp if Need.ENTROPY in needs else None
        return Scored(logp, entropy)


class DeterministicPolicy(BoundedPolicy):
    """a = centre + half_range * tanh(f(s)); DDPG and TD3. Its log-probability is defined as 0."""

    def decide(self, context: Context) -> Tensor:
        """Returns the action, with gradient."""
        return self.squash(self.body(context))

    def clamp(self, action: Tensor) -> Tensor:
        """Returns the action clamped to the task's bounds."""
        return torch.minimum(torch.maximum(action, self.centre - self.half_range), self.centre + self.half_range)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the action; `uniform` is not used."""
        action = self.decide(context)
        return action, action.new_zeros(action.shape[:-1])

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the negative squared distance of recorded actions in units of the range: the log-density of a unit
        Gaussian up to a constant, so that behaviour cloning of a deterministic actor is least squares.
        """
        return scored_distance(self.decide(batch.context), self.half_range, batch)


def scored_distance(action: Tensor, half_range: Tensor, batch: Experience) -> Scored:
    """Returns minus half the squared distance of recorded actions from these, in units of half the range."""
    return Scored(-0.5 * ((batch.action - action) / half_range).square().sum(-1) * batch.mask)


@dataclass(frozen=True)
class SquashedGaussian(ActorHead):
    """A Gaussian squashed into the bounds of continuous actions, with state-dependent mean and standard deviation."""

    def on(self, body: Body, spec: Spec) -> nn.Module:
        space = need_box(spec, "a squashed Gaussian")
        return SquashedPolicy(body.outputs(spec, Ask((2 * space.size,), activation=nn.ReLU)), space)


@dataclass(frozen=True)
class Deterministic(ActorHead):
    """One action for each state, inside the bounds of continuous actions."""

    breaks: ClassVar[dict[str, str]] = {
        "normalised": "it has no density: `score` is a squared distance, so that cloning is least squares",
        "frequencies": "it has no density: it always takes the same action",
    }

    def on(self, body: Body, spec: Spec) -> nn.Module:
        space = need_box(spec, "a deterministic actor")
        return DeterministicPolicy(body.outputs(spec, Ask((space.size,), activation=nn.ReLU)), space)
