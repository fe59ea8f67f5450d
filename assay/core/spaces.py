"""Spaces: what is observed, what is decided, and how long an episode can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from assay.core.errors import AssayError

Context = Mapping[str, Tensor]
"""What is seen before a decision, by name: `observation`, `tokens`, `goal`, ..."""


@dataclass(frozen=True)
class Discrete:
    """One of `n` choices, numbered from 0."""

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
class Vocabulary:
    """Tokens 0 to `size` - 1, three of them special."""

    size: int
    pad: int
    bos: int
    eos: int


Space = Discrete | Box | Vocabulary


@dataclass(frozen=True)
class Spec:
    """What a model must know of a task to be built: what is seen, what is decided, how long an episode can be.

    Where there is a `goal`, contexts have two more keys of that space: `goal`, what is asked for, and `achieved`, where
    the observation stands in the space of goals. Whoever reads the observation reads the goal with it.
    """

    observation: Space
    action: Space
    horizon: int
    num_costs: int = 0
    goal: Box | None = None

    def __post_init__(self) -> None:
        if self.goal is not None and not isinstance(self.observation, Box):
            raise AssayError(f"goals go with observation vectors, this task has {self.observation}; give coordinates")
