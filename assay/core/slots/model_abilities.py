"""What some models can do besides scoring: begin from data, grow, keep state, act in layers, pack rows.

Axes: B, T, N rows, F features, P outputs, D numbers of an action.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from assay.core.record import State
from assay.core.spaces import Context, Spec


@runtime_checkable
class OfData(Protocol):
    """A part of a model whose settings are statistics of the states of an offline dataset: means, ranges.

    A plan fills them in when it is made, so that they are recorded with the run and the same in training and acting.
    """

    def needs_data(self, spec: Spec) -> bool:
        """Returns whether statistics are missing for this task."""

    def of_data(self, observation: Tensor, achieved: Tensor | None) -> Any:
        """Returns the part with the statistics of these states [N, D]; `achieved` are their positions in goal space."""


@runtime_checkable
class OfRewards(Protocol):
    """A part of a model whose settings are statistics of the rewards of an offline dataset, filled in as `OfData`."""

    @property
    def needs_rewards(self) -> bool:
        """Whether statistics are missing."""

    def of_rewards(self, reward: Tensor, is_last: Tensor) -> Any:
        """Returns the part with the statistics of these rewards [N], in the order of the records; `is_last` [N] marks
        the ends of episodes.
        """



@runtime_checkable
class Grown(Protocol):
    """A module without parameters that is trained by functional gradients (boosted trees): it grows instead of
    moving.

    Losses are differentiated with respect to its recorded outputs; an optimizer that is a `Grower` adds new functions
    that lower them. Laws: `regrow` restores `growth` bitwise; outputs of a row do not depend on the other rows.
    """

    def record(self) -> None:
        """Starts to keep every input [B, T, F] and output [B, T, P]; the outputs are leaves that require gradient."""

    def recorded(self) -> list[tuple[Tensor, Tensor]]:
        """Returns the inputs and outputs kept since `record`, and stops recording."""

    def growth(self) -> State:
        """Returns everything that has grown, as tensors by name."""

    def regrow(self, state: State) -> None:
        """Replaces everything that has grown by a saved growth of any size."""

    def follow(self, other: Any, rate: float) -> None:
        """f <- f + rate * (other - f), as functions."""


@runtime_checkable
class Keeping(Protocol):
    """A module with numbers that no optimizer moves and that are saved with the model: moments of its inputs.

    Law: `keep(kept())` changes nothing.
    """

    def kept(self) -> State:
        """Returns the numbers, as tensors by name."""

    def keep(self, state: State) -> None:
        """Sets the numbers."""


@runtime_checkable
class Layered(Protocol):
    """A model with equal modules that run one after the other: a placement may compile them or apply gradient
    checkpointing. Many modules have an attribute `layers`; `has_layers_in_a_row` declares that this meaning is
    intended.
    """

    has_layers_in_a_row: bool

    def layers(self) -> Sequence[nn.Module]:
        """Returns the modules; an empty list is allowed."""


@runtime_checkable
class Packing(Protocol):
    """A model that can process packed rows: no padding, and a group's shared prefix computed once."""

    def pack(self) -> bool:
        """Switches packing on; returns False if the model cannot pack."""


class Imagined(NamedTuple):
    """What a learned model says of decisions: the next observation [N, D], reward [N], costs [N, K] or None, ended [N].
    """

    observation: Tensor
    reward: Tensor
    cost: Tensor | None
    ended: Tensor


@runtime_checkable
class Imagining(Protocol):
    """A learned model of what follows a decision, in which episodes can be played.

    Laws: rows are independent; equal random numbers give equal steps; without random numbers it is its mean.
    """

    @property
    def num_step_draws(self) -> int:
        """Number of uniform numbers that a step consumes."""

    def imagined(self, context: Context, action: Tensor, uniform: Tensor | None) -> Imagined:
        """Returns a sampled step of N rows for uniform numbers [N, num_step_draws]; its mean without."""
