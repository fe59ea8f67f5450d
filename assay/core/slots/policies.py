"""Slots around a trained policy, and options inside parts. Axes: M transitions, G numbers of a goal or latent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from assay.core.record import Certified, Experience
from assay.core.slots.tasks import Task


class Wrapper(Protocol):
    """The policy to deploy: an actor among trained models that re-ranks or filters what the actor decides.

    It acts in evaluation and is what a run exports; experience for training is gathered by the actor itself.
    Laws: rows are independent; equal random numbers give equal decisions; without random numbers it is a function of
    the context; each decision is one that the inner actor can take (`Correcting` is the exception); acting changes no
    model.
    """

    slot: ClassVar[str] = "wrapper"

    @property
    def actor(self) -> str:
        """The name of the inner policy: `actor`, or a copy of it."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of all models that it reads."""

    def around(self, models: Mapping[str, Any]) -> Any:
        """Returns the policy to deploy, given the models by name."""


class Correcting(Wrapper, Protocol):
    """A wrapper that may decide what its actor does not: it moves the actor's decision by what other models know, or
    takes over.

    Laws: those of wrappers, but for decisions of the inner actor; at `strength` 0 it is the actor to the bit, with the
    same random numbers; decisions are inside the task's space and carry no gradient; in other units of actions they
    are the same.
    """

    strength: float
    """How much of the correction is applied; 0 is the actor."""


@runtime_checkable
class Inferring(Protocol):
    """A policy that also solves other rewards without training: it infers their task vector z from data.

    Rewards are functions of positions in goal space. Axes: M positions.
    """

    def infer(self, places: Tensor, reward: Tensor) -> Tensor:
        """Returns z of the reward that pays `reward` [M] at these positions [M, G] of the data."""

    def solving(self, z: Tensor) -> Any:
        """Returns the policy of this z; it ignores the goals of contexts."""


class Certificate(Protocol):
    """Decides whether the trained policy may be deployed: called once, after training, on episodes not used in
    training.

    Law: the verdict depends on the episodes alone, not on their order.
    """

    slot: ClassVar[str] = "certificate"

    @property
    def num_starts(self) -> int:
        """Number of held-out starts it needs."""

    def __call__(self, experience: Experience, task: Task | None = None) -> Certified:
        """Returns the verdict on these complete, rewarded episodes of the task, one for each start."""


class Choice(Protocol):
    """An option inside a part: a frozen value that selects how one thing is done (which decisions are trained, which
    bound).

    The part that uses it declares the call as a protocol that inherits this one. Laws: equal settings are equal
    options and behave equally; equal inputs give equal outputs and are not modified; settings are described as JSON.
    """

    slot: ClassVar[str] = "choice"
