"""Actors whose action ends a path of Gaussian steps: what flows and diffusions share. Axes: N rows, K steps, A actions.

Points are in units of half the action range around its centre. The density is that of the path, since that of the
action alone has no closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from assay.core.spaces import Box, Context
from assay.models.bodies.paths import time_features
from assay.models.heads.spaces import register_bounds


class PathPolicy(nn.Module):
    """A policy that samples `num_points` points, and takes `steps` steps at the times in [0, 1] of `time` [K]."""

    centre: Tensor
    half_range: Tensor
    times: Tensor

    def __init__(self, space: Box, num_points: int, time: Tensor) -> None:
        super().__init__()
        self.steps, self.size = len(time), space.size
        self.num_draws, self.num_misfit_draws = num_points * space.size, 1 + space.size
        register_bounds(self, space)
        self.register_buffer("times", time_features(time))

    def walk(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Samples an action; returns it with the path's log-density and the path [N, num_points, A]."""
        raise NotImplementedError

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Samples an action; returns it with the log-density of its path."""
        action, logp, _ = self.walk(context, uniform)
        return action, logp


class OfPaths:
    """A head whose densities are those of paths."""

    breaks: ClassVar[Mapping[str, str]] = {
        "normalised": "the density is of a path, which an action alone does not give",
        "frequencies": "the density is of a path, which an action alone does not give",
    }
