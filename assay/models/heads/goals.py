"""Heads of goal-conditioned tasks: the space of goals, and representations of a fixed length.

Axes: B, T, G numbers of a goal.
"""

from __future__ import annotations

from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.spaces import Box, Spec


def of_length_root(vector: Tensor) -> Tensor:
    """Scales the vector to length sqrt(R), R its size."""
    return vector.shape[-1] ** 0.5 * nn.functional.normalize(vector, dim=-1)


def need_goal(spec: Spec, who: str) -> Box:
    """Returns the task's space of goals; raises AssayError if it has none."""
    if spec.goal is None:
        raise AssayError(f"{who} needs a task with goals; this one has none. Use four-rooms or a pointmaze")
    return spec.goal
