"""Action-value critics for continuous, discrete and tabular tasks. Axes: B, T, N critics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import CriticSpec
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.models.bodies.perceptron import Ensemble, feature_size, features
from assay.parts.critics.q import EnsembleQ


class ChoiceQ(nn.Module):
    """Q_i(s, a) of N perceptrons with one output for each choice."""

    def __init__(self, num: int, num_inputs: int, num_actions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = Ensemble(num, num_inputs, num_actions, hidden)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Action values [N, B, T]."""
        rows = features(context)
        values = self.net(rows.flatten(0, -2)).view(-1, *rows.shape[:-1], self.net.biases[-1].shape[-1])
        return values.gather(-1, action.expand(len(values), *action.shape).unsqueeze(-1)).squeeze(-1)


class TableQ(nn.Module):
    """Q_i(s, a) of numbered states and choices; starts at 0."""

    def __init__(self, num: int, num_states: int, num_actions: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(num_states, num_actions, num))

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Action values [N, B, T]."""
        return self.table[context["state"], action].movedim(-1, 0)


@dataclass(frozen=True)
class ActionValue(CriticSpec):
    """`num` critics Q(s, a) for torques, choices and numbered states alike."""

    hidden: tuple[int, ...] = (64, 64)
    num: int = 2

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if isinstance(spec.action, Box):
            return EnsembleQ(self.num, feature_size(spec) + spec.action.size, self.hidden)
        if not isinstance(spec.action, Discrete):
            raise AssayError(f"ActionValue needs torques or choices, the task has {spec.action}; try sft or dpo")
        if isinstance(spec.observation, Discrete):
            return TableQ(self.num, spec.observation.n, spec.action.n)
        return ChoiceQ(self.num, feature_size(spec), spec.action.n, self.hidden)
