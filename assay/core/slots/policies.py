"""Slots around a trained policy, and choices inside parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from assay.core.record import Certified, Experience


class Wrapper(Protocol):
    """Who acts once training is over: an actor around trained models that re-ranks, averages, filters or shields.

    It acts when the run is evaluated and is what a run hands out; experience for training is gathered by the actor.
    Laws: rows are independent; equal numbers give equal decisions; without numbers it is a function of the context;
    what it decides is a decision of the actor inside.
    """

    slot: ClassVar[str] = "wrapper"

    @property
    def actor(self) -> str:
        """The model that decides inside: `actor`, or a copy of it."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Every model it looks at."""

    def around(self, models: Mapping[str, Any]) -> Any:
        """The actor that is handed out; models by name."""


class Certificate(Protocol):
    """Whether the trained policy may be handed out: asked once, after training, about episodes that training never saw.

    Law: what it says depends on the episodes alone, not on their order.
    """

    slot: ClassVar[str] = "certificate"

    @property
    def num_starts(self) -> int:
        """How many held-out starts it asks for."""

    def __call__(self, experience: Experience) -> Certified:
        """The verdict on these whole, rewarded episodes, one for each start."""


class Choice(Protocol):
    """A choice inside a part: a frozen value that says how one thing is done (which decisions learn, which bound).

    The part that asks declares what it calls, as a protocol that inherits this one. Laws: equal settings are equal
    choices and behave equally; equal inputs give equal outputs and are not modified; settings are described as JSON.
    """

    slot: ClassVar[str] = "choice"
