"""Flow policies: an action at the end of Euler steps along a velocity. Axes: B, T, N rows, K steps, A actions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorHead, Body
from assay.core.spaces import Box, Context, Spec
from assay.models.bodies.paths import Timed, path_logp, path_noise, time_features, walked
from assay.models.bodies.perceptron import feature_size, features
from assay.models.heads.paths import OfPaths, PathPolicy
from assay.models.heads.spaces import need_box
from assay.ops.distributions import HALF_LOG_TWO_PI, normal_sample


class FlowPolicy(PathPolicy):
    """x_0 ~ N(0, I);  x_(k+1) = x_k + v(s, k/K, x_k) / K + sigma(s, k/K) * noise;  a = x_K (arXiv:2505.22094).

    sigma is a geometric mean of its bounds with learned weights and does not depend on the point, so the path's
    entropy is known. Without uniform numbers there is no noise, and the flow is deterministic.
    """

    def __init__(self, body: Body, num_inputs: int, space: Box, steps: int, noise: tuple[float, float]) -> None:
        super().__init__(space, steps + 1, torch.arange(steps) / steps)
        self.log_noise = math.log(noise[0]), math.log(noise[1])
        self.velocity = Timed(body, num_inputs + space.size, space.size)
        self.noise = Timed(body, num_inputs, space.size, output_gain=0.01)

    def log_std(self, seen: Tensor) -> Tensor:
        """Returns log sigma of all steps, [..., K, A], between the logarithms of the bounds."""
        low, high = self.log_noise
        u = self.noise((*seen.shape[:-1], self.steps), seen.unsqueeze(-2), self.times)
        return low + (high - low) * 0.5 * (u.tanh() + 1.0)

    def walk(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Samples an action; returns it with its path [N, K + 1, A] and the path's log-density."""
        seen = features(context)
        log_std = self.log_std(seen)

        def step(k: int, point: Tensor) -> Tensor:
            return point + self.velocity((len(seen),), seen, self.times[k], point) / self.steps

        path, mean = walked(step, log_std, path_noise(uniform, self.steps + 1, self.size, seen))
        action = self.centre + self.half_range * path[:, -1].clamp(-1.0, 1.0)
        return action, path_logp(path, mean, log_std), path

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the log-densities of the recorded paths; the entropy is that of a path."""
        path, seen = batch.column("path"), features(batch.context)
        point = path[..., :-1, :]
        mean = point + self.velocity(point.shape[:-1], seen.unsqueeze(-2), self.times, point) / self.steps
        log_std = self.log_std(seen)
        entropy = None
        if Need.ENTROPY in needs:
            constant = (0.5 + HALF_LOG_TWO_PI) * self.num_draws
            entropy = (log_std.sum((-2, -1)) + constant) * batch.mask
        return Scored(path_logp(path, mean, log_std) * batch.mask, entropy)

    def misfit(self, context: Context, action: Tensor, uniform: Tensor) -> Tensor:
        """Returns |v(s, t, (1 - t) x_0 + t a) - (a - x_0)|^2 at a random time and start: flow matching
        (arXiv:2209.03003).
        """
        time, start = uniform[..., 0], normal_sample(uniform[..., 1:])
        goal = (action - self.centre) / self.half_range
        point = start + time.unsqueeze(-1) * (goal - start)
        velocity = self.velocity(point.shape[:-1], features(context), time_features(time), point)
        return (velocity - (goal - start)).square().sum(-1)


@dataclass(frozen=True)
class Flow(OfPaths, ActorHead):
    """A flow policy of `steps` steps with learned noise between two bounds, in units of half the action range.

    Degenerate: equal bounds fix the noise.
    """

    steps: int = 4
    noise: tuple[float, float] = (0.08, 0.4)

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if self.steps < 1 or not 0.0 < self.noise[0] <= self.noise[1]:
            raise AssayError(f"Flow needs steps >= 1 and 0 < noise[0] <= noise[1], got {self.steps} and {self.noise}")
        space = need_box(spec, "a flow actor")
        return FlowPolicy(body, feature_size(spec), space, self.steps, self.noise)
