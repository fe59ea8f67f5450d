"""Action values over bins: acts greedily on the means of distributions. Axes: B, T, N rows, A actions, M bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import ActorSpec
from assay.core.spaces import Context, Discrete, Spec
from assay.methods.hl_gauss.bins import Bins, decoded
from assay.models.bodies.perceptron import feature_size, features, perceptron
from assay.models.q_network import Greedy, QNetwork


class GreedyInBins(Greedy):
    """Q(s, .) by a perceptron, each value the mean of a distribution over bins."""

    def __init__(self, num_inputs: int, num_actions: int, hidden: Sequence[int], bins: Bins) -> None:
        super().__init__()
        self.num_actions, self.bins = num_actions, bins
        self.net = perceptron(num_inputs, num_actions * bins.num, hidden, activation=nn.ReLU)

    def outputs(self, context: Context) -> Tensor:
        """Logits [..., A, M]."""
        return self.net(features(context)).unflatten(-1, (self.num_actions, self.bins.num))

    def values(self, context: Context) -> Tensor:
        """Q(s, .) [..., A]."""
        return decoded(self.outputs(context), self.bins)


@dataclass(frozen=True)
class BinnedQNetwork(ActorSpec):
    """A perceptron of action values over `num` bins from `low` to `high`, for discrete actions."""

    low: float = -1.0
    high: float = 1.0
    num: int = 51
    hidden: tuple[int, ...] = (64, 64)
    breaks: ClassVar[dict[str, str]] = QNetwork.breaks

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.action, Discrete):
            raise AssayError(f"BinnedQNetwork needs discrete actions, the task has {spec.action}; try BinnedTwinQ")
        bins = Bins(self.low, self.high, self.num)
        return GreedyInBins(feature_size(spec), spec.action.n, self.hidden, bins)
