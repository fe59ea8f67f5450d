"""Protocols of models: acting, scoring, building for a task, and the view that the terms of a stage get.

Axes: B sequences, T decisions, N rows, A numbers of an action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored
from assay.core.spaces import Context, Spec


class Actor(Protocol):
    """A policy. An `nn.Module` with two interfaces: acting, and scoring recorded decisions.

    Laws: the log-probability of its own sample is finite; probabilities sum (or integrate) to one; `score` returns
    the log-probability that `act` recorded; a row's result does not depend on the other rows; actions in other units
    give the same decisions and log-probabilities, so a density of continuous actions is per half-range
    (`assay.models.ActionUnits`).
    """

    @property
    def num_draws(self) -> int:
        """Number of uniform random numbers that one decision uses."""

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns (action [N] or [N, A], logp [N]) for N rows of one column.

        `uniform` [N, num_draws] in (0, 1) goes through the inverse distribution function; None selects the mode.
        """

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns log-probabilities [B, T] of the recorded decisions, zero where masked; more if `needs` asks."""


@runtime_checkable
class PathActor(Actor, Protocol):
    """An actor that computes its action by inner steps (flow, diffusion); the task gets only the final action.

    The log-probability belongs to the path, not to the action alone, so the path is recorded: callers use `walk` and
    store the path as the column `path`, where `score` reads it. `action` stays the executed action, for critics,
    datasets and replay.
    Laws: those of an actor, with the path's log-probability; `act` is `walk` without the path.
    """

    def walk(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (action, logp, path [N, ...]) for N rows."""


class ModelSpec(Protocol):
    """A frozen description of a model that can build it for a task. Initial parameters come from torch's generator,
    which the run seeds separately for each model.
    """

    def build(self, spec: Spec) -> nn.Module:
        """Returns the module for this task; raises AssayError if the task's spaces do not fit."""


class ActorSpec(ModelSpec, Protocol):
    """A spec whose module is an `Actor`."""

    slot: ClassVar[str] = "actor"


class CriticSpec(ModelSpec, Protocol):
    """A spec whose module is a learned value, score, multiplier or world model.

    Laws: values are finite, one for each decision; a row's value does not depend on other rows; actions in other units
    have the same values.
    """

    slot: ClassVar[str] = "critic"


@dataclass(frozen=True)
class Ask:
    """The output that a head requests from a body: a tensor of `shape` for each decision.

    `members` above 0 requests an ensemble of that many independent functions, along a first axis. With `action` the
    action is an input too. `gain` scales the last layer's initial weights; `activation` is the head's default for a
    body that does not set its own.
    """

    shape: tuple[int, ...] = ()
    gain: float = 1.0
    activation: type[nn.Module] = nn.Tanh
    members: int = 0
    action: bool = False

    @property
    def num(self) -> int:
        """Number of outputs per decision."""
        return math.prod(self.shape)


class Body(Protocol):
    """The part of a model that encodes the context, up to the outputs that a head requests.

    Laws: with a head `Value` it is a critic.
    """

    slot: ClassVar[str] = "body"

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns a module (context, action=None, num=None) -> [..., *shape], or [members, ..., *shape], of which the
        first `num`; raises AssayError if the body cannot read this task or provide these outputs.
        """


@runtime_checkable
class SharedBody(Protocol):
    """A critic's body that can be the actor's own network (a shared backbone) instead of a network of its own.

    The critic is then its head alone: the network's weights are the actor's, which saves and steps them once.
    """

    @property
    def shared(self) -> bool:
        """Whether it is the actor's network."""

    @property
    def body_gradient(self) -> float:
        """Factor of the critic loss's gradient into the shared network; 0 detaches it."""

    def check_shared(self, actor: ModelSpec, head: Any) -> None:
        """Raises AssayError if a critic with this head cannot share the network of this actor."""

    def on(self, actor: nn.Module) -> Body:
        """Returns the body that reads the hidden states of a built actor."""


class ActorHead(Protocol):
    """Turns a body's outputs into decisions. Laws: on a perceptron it is an actor."""

    slot: ClassVar[str] = "actor_head"

    def on(self, body: Body, spec: Spec) -> nn.Module:
        """Returns the actor; raises AssayError if the task's actions do not fit."""


class CriticHead(Protocol):
    """Turns a body's outputs into values, scores or predictions. Laws: on a perceptron it is a critic."""

    slot: ClassVar[str] = "critic_head"

    def on(self, body: Body, spec: Spec) -> nn.Module:
        """Returns the critic; raises AssayError if the task does not fit."""


@runtime_checkable
class Sampled(Protocol):
    """An actor of tokens that the paged sampler can decode for: `sampler` holds it after its first use."""

    sampler: Any

    def release(self) -> None:
        """Frees the memory that decoding holds and an update needs; the next decoding allocates it again."""


class View(Protocol):
    """The models bound to this stage's parameters: what a term may use besides its batch."""

    @property
    def scored(self) -> Scored:
        """The actor's scores of the batch, computed once and shared by the stage's terms."""

    @property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """(action, logp) sampled from the actor in all columns but the last, with gradient; computed once."""

    def model(self, name: str) -> Any:
        """Returns `actor`, a critic, or a copy. Gradient reaches only the models that the stage trains."""

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Returns uniform numbers in (0, 1) that belong to this update and this `tag`."""
