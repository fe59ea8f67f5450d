"""What models must do: act, score, be built for a task, and be looked at by the terms of a stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn

from assay.core.record import Experience, Need, Scored, State
from assay.core.spaces import Context, Spec


class Actor(Protocol):
    """Who decides. An `nn.Module` with two faces: acting, and scoring what was done.

    Laws: the log-probability of its own sample is finite; probabilities sum (or integrate) to one; `score` gives the
    log-probability that `act` recorded; a row's result does not depend on the other rows.
    """

    @property
    def num_draws(self) -> int:
        """Uniform numbers that one decision consumes."""

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Decides for N rows of one column: (action [N] or [N, A], logp [N]).

        `uniform` [N, num_draws] in (0, 1) goes through the inverse distribution function; None means the mode.
        """

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the recorded decisions, [B, T], zero where the mask is false; more only if asked."""


@runtime_checkable
class PathActor(Actor, Protocol):
    """An actor that comes to its action by inner steps (flow, diffusion), of which the task gets only the end.

    The action does not say how likely its path was, so the path is recorded: who records calls `walk` and keeps the
    path as the column `path`, where `score` finds it. `action` stays what was done, for critics, logs and replay.
    Laws: an actor's, with the path's log-probability; `act` is `walk` without the path.
    """

    def walk(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Decides for N rows: (action, logp, path [N, ...])."""


class ModelSpec(Protocol):
    """A frozen description of a model that can build it for a task. Parameters come from torch's generator, which the
    run seeds per model."""

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task; raises AssayError where the task's spaces do not fit."""


class ActorSpec(ModelSpec, Protocol):
    """A spec whose module is an `Actor`."""

    slot: ClassVar[str] = "actor"


class CriticSpec(ModelSpec, Protocol):
    """A spec whose module is a learned value, score, multiplier or model of the world."""

    slot: ClassVar[str] = "critic"


@dataclass(frozen=True)
class Ask:
    """What a head asks of a body: numbers of a `shape` for each decision.

    `members` above 0 asks for that many independent functions, in a first axis of their own. With `action` the decision
    is an input too. `gain` scales the last layer's initial weights; `activation` is what such a head is usually trained
    with, for a body that names none of its own.
    """

    shape: tuple[int, ...] = ()
    gain: float = 1.0
    activation: type[nn.Module] = nn.Tanh
    members: int = 0
    action: bool = False

    @property
    def num(self) -> int:
        """How many numbers a decision has."""
        return math.prod(self.shape)


class Body(Protocol):
    """What a model reads its context with, up to the numbers that a head asks for.

    Laws: with a head `Value` it is a critic.
    """

    slot: ClassVar[str] = "body"

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """A module (context, action=None, num=None) -> [..., *shape], or [members, ..., *shape], of which the first
        `num`; AssayError where the body cannot read this task or give what is asked.
        """


class ActorHead(Protocol):
    """What makes decisions of a body's numbers. Laws: on a perceptron it is an actor."""

    slot: ClassVar[str] = "actor_head"

    def on(self, body: Body, spec: Spec) -> nn.Module:
        """The actor; AssayError where the task's actions do not fit."""


class CriticHead(Protocol):
    """What makes values, scores or predictions of a body's numbers. Laws: on a perceptron it is a critic."""

    slot: ClassVar[str] = "critic_head"

    def on(self, body: Body, spec: Spec) -> nn.Module:
        """The critic; AssayError where the task does not fit."""


@runtime_checkable
class Grown(Protocol):
    """A module, a model or inside one, that is stepped by the gradient of its outputs and grows: it has no parameters.

    Losses are differentiated by the outputs that it recorded; an optimizer that is a `Grower` adds to it what lowers
    them. Laws: what `growth` gives, `regrow` makes again bitwise; outputs of a row do not depend on the other rows.
    """

    def record(self) -> None:
        """From now on, keeps every input [B, T, F] and output [B, T, P]; the outputs are leaves that take gradient."""

    def recorded(self) -> list[tuple[Tensor, Tensor]]:
        """The inputs and outputs kept since `record`; ends it."""

    def growth(self) -> State:
        """All that has grown, as tensors by name."""

    def regrow(self, state: State) -> None:
        """Takes a growth over, whatever its size."""

    def follow(self, other: Any, rate: float) -> None:
        """f <- f + rate * (other - f), as functions."""


@runtime_checkable
class Layered(Protocol):
    """A model with modules of one kind that run one after the other: a placement may compile them, or run them again
    in the backward pass. Many modules call something of theirs `layers`; this one says that it means it.
    """

    has_layers_in_a_row: bool

    def layers(self) -> Sequence[nn.Module]:
        """The modules; none is allowed."""


@runtime_checkable
class Packing(Protocol):
    """A model that can take rows behind each other, without padding, and once what rows of a group begin with."""

    def pack(self) -> bool:
        """From now on it does; False where it cannot."""


@runtime_checkable
class Sampled(Protocol):
    """An actor of tokens that a paged sampler can decode for: `sampler` holds it once it was needed."""

    sampler: Any

    def release(self) -> None:
        """Frees the memory that decoding holds and an update needs; the next decoding allocates it again."""


class View(Protocol):
    """The models bound to this stage's parameters: what a term may look at besides its batch."""

    @property
    def scored(self) -> Scored:
        """The actor on the batch, computed once and shared by the stage's terms."""

    @property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """(action, logp) that the actor itself takes in all columns but the last, with gradient; sampled once."""

    def model(self, name: str) -> Any:
        """`actor`, a critic, or a copy such as `reference`. Gradient reaches only what the stage trains."""

    def uniform(self, shape: Sequence[int], tag: int) -> Tensor:
        """Uniform numbers in (0, 1) that belong to this update and this `tag`."""
