"""Actors for learning from a stream: sparse normalised perceptrons, and observations scaled by running moments.

Axes: B, T, N rows, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored
from assay.core.slots import ActorSpec, ModelSpec
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.methods.stream_x.networks import RunningScale, sparse_perceptron
from assay.models.bodies.perceptron import feature_size, features
from assay.models.mlp import Mlp
from assay.models.q_network import QNetwork


@dataclass(frozen=True)
class SparseMlp(ActorSpec):
    """A policy whose network is sparse and normalised: categorical for discrete actions, else Gaussian."""

    hidden: tuple[int, ...] = (32, 32)

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        module: Any = Mlp(self.hidden).build(spec)
        module.net = sparse_perceptron(feature_size(spec), num_outputs(spec), self.hidden)
        return module


@dataclass(frozen=True)
class SparseQ(ActorSpec):
    """Action values of discrete actions by a sparse and normalised network."""

    hidden: tuple[int, ...] = (32, 32)
    breaks: ClassVar[dict[str, str]] = QNetwork.breaks

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        module: Any = QNetwork(self.hidden).build(spec)
        module.net = sparse_perceptron(feature_size(spec), num_outputs(spec), self.hidden)
        return module


def num_outputs(spec: Spec) -> int:
    """Numbers that decide: a logit or value for each choice, a mean for each torque."""
    assert isinstance(spec.action, Discrete | Box)
    return spec.action.n if isinstance(spec.action, Discrete) else spec.action.size


class NormalizedActor(nn.Module):
    """An actor that sees observations in units of their running spread."""

    def __init__(self, actor: Any, num_inputs: int) -> None:
        super().__init__()
        self.actor, self.scale = actor, RunningScale(num_inputs)

    @property
    def num_draws(self) -> int:
        """As the actor inside."""
        return int(self.actor.num_draws)

    @property
    def num_actions(self) -> int:
        """As the actor inside."""
        return int(self.actor.num_actions)

    def seen(self, context: Context) -> Context:
        """All that is seen as one scaled observation."""
        return {"observation": self.scale(features(context))}

    def values(self, context: Context) -> Tensor:
        """Q(s, .) [..., A] where the actor inside has them."""
        values: Tensor = self.actor.values(self.seen(context))
        return values

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """As the actor inside."""
        action, logp = self.actor.act(self.seen(context), uniform)
        return action, logp

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """As the actor inside."""
        scored: Scored = self.actor.score(replace(batch, context=self.seen(batch.context)), needs)
        return scored


@dataclass(frozen=True)
class Normalized(ActorSpec):
    """An actor behind (x - mean) / spread of the observations so far; `FitMoments` keeps the moments."""

    actor: ModelSpec = SparseMlp()

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        return NormalizedActor(self.actor.build(spec), feature_size(spec))
