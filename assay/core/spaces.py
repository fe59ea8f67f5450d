"""Spaces: observations, actions, and the length of an episode. Tensors have the batch axes that they are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from assay.core.errors import AssayError

Context = Mapping[str, Tensor]
"""The input of a decision, by name: `observation`, `tokens`, `goal`, ..."""


MASK = "action_mask"
"""Key of a context, of an entry in a Dict observation, and of Gymnasium's info: the options that are allowed."""


@dataclass(frozen=True)
class Discrete:
    """One of `n` discrete actions, numbered from 0."""

    n: int


@dataclass(frozen=True)
class Box:
    """A vector between `low` and `high`, dimension by dimension (infinite where unbounded)."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return len(self.low)


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once: choice i is one of `sizes[i]`, numbered from 0."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Image:
    """Pixels as bytes, [channels, height, width], from 0 to `top`; `numbers` more numbers beside them.

    Contexts have the key `image`, and `observation` for the numbers, if there are any.
    """

    channels: int
    height: int
    width: int
    top: int = 255
    numbers: int = 0

    @property
    def size(self) -> int:
        """Number of bytes of the pixels."""
        return self.channels * self.height * self.width


@dataclass(frozen=True)
class Vocabulary:
    """Tokens 0 to `size` - 1, three of them special."""

    size: int
    pad: int
    bos: int
    eos: int


Space = Discrete | Box | Vocabulary | MultiDiscrete | Image


def num_options(action: Space) -> int:
    """Returns the length of an action mask: the options of all choices; AssayError for other actions."""
    if isinstance(action, Discrete):
        return action.n
    if isinstance(action, MultiDiscrete):
        return sum(action.sizes)
    raise AssayError(f"action masks are for discrete choices, not for {action}")


@dataclass(frozen=True)
class Spec:
    """The facts of a task that a model is built from: observation space, action space, length of an episode.

    With a `goal`, contexts have two more keys of that space: `goal`, the desired goal, and `achieved`, the
    observation's place in goal space. Models that read the observation read the goal with it. `scores` is the range
    of an episode's score, if the task states it: no interval leaves it. With `masked`, contexts have the key
    `action_mask`: which options are allowed, those of several choices one after the other. `largest_cost` is the most
    that one decision can cost, if the task states it: without it no bound of a mean cost holds, since large ones may be
    too rare to be seen.
    """

    observation: Space
    action: Space
    horizon: int
    num_costs: int = 0
    goal: Box | None = None
    scores: tuple[float, float] | None = None
    masked: bool = False
    largest_cost: float | None = None

    def __post_init__(self) -> None:
        if self.goal is not None and not isinstance(self.observation, Box):
            raise AssayError(f"goals need observation vectors, not {self.observation}. Use a Box observation")
