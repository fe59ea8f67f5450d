"""An actor that is its own critic: acts greedily on action values. Axes: B, T, N rows, A actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorSpec
from assay.core.spaces import Context, Discrete, Spec
from assay.models.bodies.perceptron import feature_size, features, perceptron


class Greedy(nn.Module):
    """a = argmax Q(s, .) of whatever gives the values; the log-probability of the greedy action is 0."""

    num_draws = 1

    def values(self, context: Context) -> Tensor:
        """Q(s, .) [..., A]."""
        raise NotImplementedError

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """The greedy action; `uniform` is not used (exploring wraps this actor)."""
        values = self.values(context)
        return values.argmax(-1), values.new_zeros(values.shape[:-1])

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """log softmax(Q)[a]: lets action values be cloned or regularised as a policy."""
        log_prob = self.values(batch.context).log_softmax(-1)
        return Scored(log_prob.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1) * batch.mask)


class GreedyQ(Greedy):
    """Q(s, .) by a perceptron."""

    def __init__(self, num_inputs: int, num_actions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.net = perceptron(num_inputs, num_actions, hidden, activation=nn.ReLU)

    def values(self, context: Context) -> Tensor:
        """Q(s, .) [..., A]."""
        return self.net(features(context))


@dataclass(frozen=True)
class QNetwork(ActorSpec):
    """A perceptron of action values for discrete actions."""

    hidden: tuple[int, ...] = (64, 64)
    breaks: ClassVar[dict[str, str]] = {
        "agree": "acts greedily with log-probability 0; `score` is the softmax of the values, for cloning",
        "frequencies": "acts greedily; `score` is the softmax of the values, for cloning",
    }

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.action, Discrete):
            raise AssayError(f"dqn needs discrete actions, the task has {spec.action}; try sac or td3")
        return GreedyQ(feature_size(spec), spec.action.n, self.hidden)
