"""Action-value critics. Axes: B sequences, T columns, N critics, A actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import CriticSpec
from assay.core.spaces import Box, Context, Spec
from assay.models.bodies.perceptron import Ensemble, feature_size, features


class EnsembleQ(nn.Module):
    """Q_i(s, a) of N perceptrons side by side."""

    def __init__(self, num: int, num_inputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = Ensemble(num, num_inputs, 1, hidden)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Action values [N, B, T]."""
        rows = torch.cat((features(context), action), -1)
        return self.net(rows.flatten(0, -2)).view(-1, *rows.shape[:-1])

    def first(self, context: Context, action: Tensor) -> Tensor:
        """Q_1 alone, [B, T]."""
        rows = torch.cat((features(context), action), -1)
        return self.net(rows.flatten(0, -2), 1).view(rows.shape[:-1])


@dataclass(frozen=True)
class TwinQ(CriticSpec):
    """`num` action-value critics for continuous actions (two for the clipped double Q of TD3 and SAC)."""

    hidden: tuple[int, ...] = (256, 256)
    num: int = 2

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.action, Box):
            raise AssayError(f"TwinQ needs continuous actions, the task has {spec.action}; try dqn")
        return EnsembleQ(self.num, feature_size(spec) + spec.action.size, self.hidden)


class Exponential(nn.Module):
    """A positive number exp(log_value) that is learned."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor(initial).log())

    def forward(self) -> Tensor:
        """The number."""
        return self.log_value.exp()


@dataclass(frozen=True)
class Temperature(CriticSpec):
    """SAC's temperature: a learned positive number."""

    initial: float = 1.0

    def build(self, spec: Spec) -> nn.Module:
        """The module; the task does not matter."""
        return Exponential(self.initial)
