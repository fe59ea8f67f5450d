"""Chains of Gaussian steps from noise to an action, and time features for the networks in them.

Axes: K steps, A action dimensions. A path is [..., K + 1, A]; step k leads from point k to point k + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from assay.core.slots import Ask, Body
from assay.models.bodies.perceptron import vectors
from assay.ops.distributions import HALF_LOG_TWO_PI, normal_logp, normal_sample

NUM_TIMES = 4

Step = Callable[[int, Tensor], Tensor]
"""(number of the step, point) -> mean of the next point."""


def time_features(time: Tensor) -> Tensor:
    """Returns a time in [0, 1] as NUM_TIMES smooth features, in a new last axis."""
    angle = math.pi * time
    return torch.stack((2.0 * time - 1.0, angle.sin(), (2.0 * angle).sin(), (2.0 * angle).cos()), -1)


def walked(step: Step, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (path [N, K + 1, A], means [N, K, A]): the path begins at the first noise, the others perturb the
    steps.

    Zero noise is the most likely path if the standard deviations do not depend on the point.
    """
    points, means, std = [noise[:, 0]], [], log_std.exp()
    for k in range(noise.shape[1] - 1):
        means.append(step(k, points[-1]))
        points.append(means[-1] + std[:, k] * noise[:, k + 1])
    return torch.stack(points, 1), torch.stack(means, 1)


def path_noise(uniform: Tensor | None, num_points: int, size: int, like: Tensor) -> Tensor:
    """Returns normal numbers [N, num_points, size] by the inverse distribution function; else zeros."""
    if uniform is None:
        return like.new_zeros(len(like), num_points, size)
    return normal_sample(uniform).view(-1, num_points, size)


def path_logp(path: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Returns log N(first point; 0, 1) + sum over steps of log N(next point; mean, std), [...]."""
    first = path[..., 0, :]
    start = (-0.5 * first.square() - HALF_LOG_TWO_PI).sum(-1)
    return start + normal_logp(path[..., 1:, :], mean, log_std).sum(-1)


class Timed(nn.Module):
    """f(s, t, x): a body's network of the context, the time in the chain, and the current point."""

    def __init__(self, body: Body, num_inputs: int, size: int, output_gain: float = 1.0) -> None:
        super().__init__()
        ask = Ask((size,), output_gain, nn.SiLU)
        self.net = vectors(body, "a path to an action").network(num_inputs + NUM_TIMES, ask)

    def forward(self, shape: Sequence[int], *parts: Tensor) -> Tensor:
        """Returns [*shape, out] from parts [..., size] broadcast to `shape`: features of context and time, a point."""
        outputs: Tensor = self.net(torch.cat([part.expand(*shape, part.shape[-1]) for part in parts], -1))
        return outputs
