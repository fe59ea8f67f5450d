"""Diffusion policies: an action at the end of denoising steps. Axes: B, T, N rows, K denoising steps, A actions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Body
from assay.core.spaces import Box, Context, Spec
from assay.models.bodies.paths import Timed, path_logp, path_noise, walked
from assay.models.bodies.perceptron import feature_size, features
from assay.models.heads.paths import OfPaths, PathPolicy
from assay.models.heads.spaces import need_box
from assay.ops.distributions import normal_sample

LOW, HIGH = 0.1, 10.0


def alphas(steps: int) -> Tensor:
    """Returns alpha_1, ..., alpha_K, float64."""
    k = torch.arange(1, steps + 1, dtype=torch.float64)
    return (-LOW / steps - 0.5 * (HIGH - LOW) * (2.0 * k - 1.0) / steps**2).exp()


class DiffusionPolicy(PathPolicy):
    """x_K ~ N(0, I);  x_(k-1) = clip(x_k - (1 - alpha_k) / sqrt(1 - abar_k) * eps(s, k, x_k)) / sqrt(alpha_k)) +
    noise.

    The noise has variance 1 - alpha_k; the last step has none, so that a = x_0 is a function of the path x_K, ...,
    x_1, whose density is known (DDPM, arXiv:2006.11239). Without uniform numbers there is no noise at all.
    """

    alpha: Tensor
    total: Tensor

    def __init__(self, body: Body, num_inputs: int, space: Box, steps: int) -> None:
        # Paths run from K down to 1, so the buffers do too.
        super().__init__(space, steps, torch.arange(steps, 0, -1) / steps)
        self.noise = Timed(body, num_inputs + space.size, space.size)
        alpha = alphas(steps)
        self.register_buffer("alpha", alpha.flip(0).float())
        self.register_buffer("total", alpha.cumprod(0).flip(0).float())

    def denoised(self, seen: Tensor, which: int | slice | Tensor, point: Tensor) -> Tensor:
        """Returns the mean of the point after step `which` (0 is the first taken); seen and point are [..., size]."""
        noise = self.noise(point.shape[:-1], seen, self.times[which], point)
        alpha, total = self.alpha[which].unsqueeze(-1), self.total[which].unsqueeze(-1)
        return ((point - (1.0 - alpha) / (1.0 - total).sqrt() * noise) / alpha.sqrt()).clamp(-1.0, 1.0)

    def walk(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Samples an action; returns it with its path x_K, ..., x_1 [N, K, A] and the path's log-density."""
        seen = features(context)
        log_std = self.log_std(seen)
        noise = path_noise(uniform, self.steps, self.size, seen)
        path, mean = walked(lambda k, point: self.denoised(seen, k, point), log_std, noise)
        action = self.centre + self.half_range * self.denoised(seen, -1, path[:, -1])
        return action, path_logp(path, mean, log_std), path

    def log_std(self, seen: Tensor) -> Tensor:
        """Returns log sqrt(1 - alpha) of the steps with noise, [..., K - 1, A]."""
        spread = 0.5 * (1.0 - self.alpha[:-1]).log()
        return spread.unsqueeze(-1).expand(*seen.shape[:-1], self.steps - 1, self.size)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the log-densities of the recorded paths."""
        path, seen = batch.column("path"), features(batch.context)
        mean = self.denoised(seen.unsqueeze(-2), slice(-1), path[..., :-1, :])
        return Scored(path_logp(path, mean, self.log_std(seen)) * batch.mask)

    def misfit(self, context: Context, action: Tensor, uniform: Tensor) -> Tensor:
        """Returns |eps(s, k, sqrt(abar_k) a + sqrt(1 - abar_k) noise) - noise|^2 at a random step."""
        which = (uniform[..., 0] * self.steps).long().clamp(max=self.steps - 1)
        noise, total = normal_sample(uniform[..., 1:]), self.total[which].unsqueeze(-1)
        goal = (action - self.centre) / self.half_range
        point = total.sqrt() * goal + (1.0 - total).sqrt() * noise
        return (self.noise(point.shape[:-1], features(context), self.times[which], point) - noise).square().sum(-1)


@dataclass(frozen=True)
class Diffusion(OfPaths, ActorHead):
    """A diffusion policy of `steps` steps, at least two: with one step no part of the path has a density."""

    steps: int = 5

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if self.steps < 2:
            raise AssayError(f"Diffusion needs at least 2 steps, got {self.steps}")
        return DiffusionPolicy(body, feature_size(spec), need_box(spec, "a diffusion actor"), self.steps)
