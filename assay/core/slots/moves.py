"""Slots of what moves parameters and settings: optimizers, gates of target networks, schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from assay.core.record import Fit, Progress, State, Sums


class Gate(Protocol):
    """Whether a copy may follow its model now: asked whenever the copy is due, and the copy stays where it says no.

    Laws: models are not modified; what it says depends on models and state alone; its state survives save and load.
    """

    slot: ClassVar[str] = "gate"

    def init(self) -> State:
        """The state at the start of a run."""

    def __call__(self, models: Mapping[str, Any], state: State) -> Tensor:
        """True where the copy follows: [] for all of it, [N] for members along the first axis of every parameter."""


class Optimizer(Protocol):
    """How a stage's parameters move. Law: its state, saved and restored, goes on bitwise."""

    slot: ClassVar[str] = "optimizer"

    @property
    def learning_rate(self) -> float | Schedule:
        """How far; 0 holds everything still."""

    @property
    def clip_norm(self) -> float:
        """The norm to which gradients are scaled down before a step; 0 leaves them."""

    def init(self, values: Sequence[Tensor]) -> State:
        """The state at the start of a run, for these flat tensors of parameters."""

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Moves the values and the state in place; `sums` are the metrics of this update's losses."""


@runtime_checkable
class Steady(Optimizer, Protocol):
    """An optimizer that a gradient of NaN moves nowhere, neither values nor state: nobody needs to look at a gradient
    before the step, and the host need not wait for it. Others are only called with finite gradients.
    """

    is_steady: bool


@runtime_checkable
class Grower(Optimizer, Protocol):
    """An optimizer for stages whose models grow instead of moving; parameters that they also have, it moves."""

    def grow(self, fits: Sequence[Fit], state: State) -> None:
        """Adds to each module what goes against its gradient; the stage's modules at once, so that they can share."""


class Schedule(Protocol):
    """A setting that moves with progress; stands where a number stands."""

    slot: ClassVar[str] = "schedule"

    def at(self, progress: Progress) -> float:
        """Its value now."""


def number(setting: float | Schedule) -> float:
    """A setting as a number; the loop has replaced schedules by their values before any part runs."""
    assert isinstance(setting, int | float), f"{setting} was not resolved: call recipe.at(progress) first"
    return float(setting)
