"""Slots that update parameters and settings: optimizers, gates of target networks, schedules.

Values are flat; a gate answers for N instances of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from assay.core.record import Fit, Progress, State, Sums


class Gate(Protocol):
    """Decides whether a target network is updated now: called whenever the update is due; a False leaves it
    unchanged.

    Laws: models are not modified; the result depends on models and state alone; its state survives save and load.
    """

    slot: ClassVar[str] = "gate"

    def init(self) -> State:
        """Returns the state at the start of a run."""

    def __call__(self, models: Mapping[str, Any], state: State) -> Tensor:
        """Returns True where the target network is updated: [] for all of it, [N] for members on the first axis."""


class Optimizer(Protocol):
    """Updates a stage's parameters. Law: with its state saved and restored, it continues bitwise."""

    slot: ClassVar[str] = "optimizer"

    @property
    def learning_rate(self) -> float | Schedule:
        """The step size; 0 leaves every parameter unchanged."""

    @property
    def clip_norm(self) -> float:
        """The global norm to which gradients are clipped before a step; 0 means no clipping."""

    @property
    def is_elementwise(self) -> bool:
        """Whether each number is updated by its own gradient and state alone, so that ranks may each step a slice.

        Lists in the state then have one tensor for each value, of its layout; the rest is the same for all slices.
        """
        return False

    def init(self, values: Sequence[Tensor]) -> State:
        """Returns the state at the start of a run, for these flat tensors of parameters; by default none."""
        return {}

    def begin(self, state: State) -> None:
        """Changes the state in place before the first update of every step of the loop, whatever epochs and
        minibatches its source makes of a batch; by default nothing.
        """
        return

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Updates the values and the state in place; `sums` are the metrics of this update's losses."""


@runtime_checkable
class Steady(Optimizer, Protocol):
    """An optimizer for which a NaN gradient is a no-op, for values and state: gradients need no check before the
    step, and the host need not wait for one. Other optimizers are called with finite gradients only.
    """

    is_steady: bool


@runtime_checkable
class Grower(Optimizer, Protocol):
    """An optimizer for stages whose models grow; it also updates the parameters these models have."""

    def grow(self, fits: Sequence[Fit], state: State) -> None:
        """Adds to each module a function against its gradient; all modules of a stage at once may share structure."""


class Schedule(Protocol):
    """A setting that changes with progress; it can replace a number."""

    slot: ClassVar[str] = "schedule"

    def at(self, progress: Progress) -> float:
        """Returns its current value."""


def number(setting: float | Schedule) -> float:
    """Returns a setting as a number; the loop replaces schedules by their values before any part runs."""
    assert isinstance(setting, int | float), f"{setting} was not resolved: call recipe.at(progress) first"
    return float(setting)
