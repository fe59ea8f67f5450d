"""Critics that put a value into bins: `outputs` are logits over the bins, the value is their mean. Axes: M bins.

For everybody but their loss (policy, bootstrap, credit) they are critics like any other. Logits of 0 decode to the
middle of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import CriticSpec
from assay.core.spaces import Box, Context, Discrete, Spec, Vocabulary
from assay.methods.hl_gauss.bins import Bins, decoded
from assay.models.bodies.perceptron import Ensemble, feature_size, features, perceptron
from assay.models.bodies.transformer import Trunk


class PerceptronLogits(nn.Module):
    """Logits of an observation vector."""

    def __init__(self, num_inputs: int, num_outputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = perceptron(num_inputs, num_outputs, hidden)

    def forward(self, context: Context) -> Tensor:
        """[..., M]."""
        return self.net(features(context))


class TableLogits(nn.Module):
    """Logits of a numbered state, all 0 at first."""

    def __init__(self, num_states: int, num_outputs: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(num_states, num_outputs))

    def forward(self, context: Context) -> Tensor:
        """[..., M]."""
        return self.table[context["state"]]


class TransformerLogits(nn.Module):
    """Logits of the tokens before t, all 0 at first."""

    def __init__(self, trunk: Trunk, num_outputs: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = nn.Linear(trunk.norm.shape[0], num_outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, context: Context) -> Tensor:
        """[B, T, M]."""
        return self.head(self.trunk.states_before(context, 0))


class ValueInBins(nn.Module):
    """V(s), the mean of a distribution over bins."""

    def __init__(self, outputs: nn.Module, bins: Bins) -> None:
        super().__init__()
        self.outputs, self.bins = outputs, bins

    def forward(self, context: Context) -> Tensor:
        """State values [...]."""
        return decoded(self.outputs(context), self.bins)


class EnsembleInBins(nn.Module):
    """Q_i(s, a) of N perceptrons side by side, each the mean of a distribution over bins."""

    def __init__(self, num: int, num_inputs: int, hidden: Sequence[int], bins: Bins) -> None:
        super().__init__()
        self.bins = bins
        self.net = Ensemble(num, num_inputs, bins.num, hidden)

    def outputs(self, context: Context, action: Tensor, num: int | None = None) -> Tensor:
        """Logits [N, B, T, M] of all critics or the first `num`."""
        rows = torch.cat((features(context), action), -1)
        return self.net(rows.flatten(0, -2), num).view(-1, *rows.shape[:-1], self.bins.num)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Action values [N, B, T]."""
        return decoded(self.outputs(context, action), self.bins)

    def first(self, context: Context, action: Tensor) -> Tensor:
        """Q_1 alone, [B, T]."""
        return decoded(self.outputs(context, action, 1), self.bins).squeeze(0)


@dataclass(frozen=True)
class BinnedValue(CriticSpec):
    """A critic V over bins for every kind of task: a perceptron for observations, a table for numbered states, a
    transformer of four heads for tokens.

    `low` to `high` should contain all returns with three bins to spare.
    """

    low: float = -1.5
    high: float = 1.5
    num: int = 51
    hidden: tuple[int, ...] = (64, 64)
    width: int = 128
    layers: int = 2

    @property
    def bins(self) -> Bins:
        """The range cut into equal bins."""
        return Bins(self.low, self.high, self.num)

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        bins = self.bins
        if isinstance(spec.observation, Vocabulary):
            trunk = Trunk(spec.observation, self.width, self.layers, num_heads=4)
            return ValueInBins(TransformerLogits(trunk, self.num), bins)
        if isinstance(spec.observation, Discrete):
            return ValueInBins(TableLogits(spec.observation.n, self.num), bins)
        return ValueInBins(PerceptronLogits(feature_size(spec), self.num, self.hidden), bins)


@dataclass(frozen=True)
class BinnedTwinQ(CriticSpec):
    """`members` action-value critics over bins for continuous actions."""

    low: float = -1.0
    high: float = 1.0
    num: int = 101
    hidden: tuple[int, ...] = (256, 256)
    members: int = 2

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.action, Box):
            raise AssayError(f"BinnedTwinQ needs continuous actions, the task has {spec.action}; try BinnedQNetwork")
        size = feature_size(spec) + spec.action.size
        return EnsembleInBins(self.members, size, self.hidden, Bins(self.low, self.high, self.num))
