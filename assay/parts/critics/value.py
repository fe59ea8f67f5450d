"""State-value critics for both worlds. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import CriticSpec
from assay.core.spaces import Context, Discrete, Spec, Vocabulary
from assay.models.bodies.perceptron import feature_size, features, perceptron
from assay.models.bodies.transformer import Trunk


class PerceptronValue(nn.Module):
    """V(s) of an observation vector."""

    def __init__(self, num_inputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = perceptron(num_inputs, 1, hidden)

    def forward(self, context: Context) -> Tensor:
        """State values [...]."""
        return self.net(features(context)).squeeze(-1)


class TableValue(nn.Module):
    """V(s) of a numbered state; starts at 0."""

    def __init__(self, num_states: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(num_states))

    def forward(self, context: Context) -> Tensor:
        """State values [...]."""
        return self.table[context["state"]]


class TransformerValue(nn.Module):
    """V(tokens before t), from a trunk of its own; starts at 0."""

    def __init__(self, trunk: Trunk, pack_to: int) -> None:
        super().__init__()
        self.trunk, self.pack_to = trunk, pack_to
        self.head = nn.Linear(trunk.norm.shape[0], 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, context: Context) -> Tensor:
        """State values [B, T]."""
        return self.head(self.trunk.states_before(context, self.pack_to)).squeeze(-1)


@dataclass(frozen=True)
class StateValue(CriticSpec):
    """A critic V(s): a perceptron for observations, a table for numbered states."""

    hidden: tuple[int, ...] = (64, 64)

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if isinstance(spec.observation, Discrete):
            return TableValue(spec.observation.n)
        return PerceptronValue(feature_size(spec), self.hidden)


@dataclass(frozen=True)
class TokenValue(CriticSpec):
    """A critic V(tokens so far): a transformer with a scalar head."""

    width: int = 128
    layers: int = 2
    heads: int = 4
    pack_to: int = 0

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.observation, Vocabulary):
            raise AssayError(
                f"TokenValue needs a token task, this one has observations {spec.observation}; use StateValue()"
            )
        return TransformerValue(Trunk(spec.observation, self.width, self.layers, self.heads), self.pack_to)
