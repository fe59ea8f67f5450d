"""Values of goals, V(s, g). Axes: B sequences, T columns, N heads, R numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import CriticSpec
from assay.core.spaces import Context, Spec
from assay.models.bodies.perceptron import Ensemble, feature_size, features, perceptron


class RepresentedValue(nn.Module):
    """V_i(s, g) = f_i(s, phi(s, g)), phi of length sqrt(R): N heads that know the goal by its representation alone."""

    def __init__(self, spec: Spec, size: int, num: int, hidden: Sequence[int]) -> None:
        super().__init__()
        num_inputs = feature_size(spec)
        num_seen = num_inputs - (spec.goal.size if spec.goal is not None else 0)
        self.phi = perceptron(num_inputs, size, hidden, activation=nn.ReLU)
        self.heads = Ensemble(num, num_seen + size, 1, hidden)

    def represent(self, context: Context) -> Tensor:
        """phi(s, g) [..., R]."""
        return of_length_root(self.phi(features(context)))

    def forward(self, context: Context) -> Tensor:
        """Values [N, B, T]."""
        rows = torch.cat((context["observation"], self.represent(context)), -1)
        return self.heads(rows.flatten(0, -2)).view(-1, *rows.shape[:-1])


def of_length_root(vector: Tensor) -> Tensor:
    """The vector with length sqrt(R)."""
    return vector.shape[-1] ** 0.5 * nn.functional.normalize(vector, dim=-1)


@dataclass(frozen=True)
class GoalValue(CriticSpec):
    """`num` values V(s, g) behind a representation of `size` numbers (HIQL, arXiv:2307.11949)."""

    hidden: tuple[int, ...] = (128, 128)
    size: int = 10
    num: int = 2

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if spec.goal is None:
            raise AssayError("GoalValue needs a task with goals, this one has none; take four-rooms or a pointmaze")
        return RepresentedValue(spec, self.size, self.num, self.hidden)
