"""Methods and what they promise: exact claims (identities, every commit) and measured ones (paired seeds against a
rival).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from assay.recipe import Recipe
from assay.types import AssayError
from assay.worlds import World


@dataclass(frozen=True)
class Finding:
    """How an exact claim came out."""

    claim: str
    value: float
    expected: str
    holds: bool


@dataclass(frozen=True)
class Exact:
    """A number that must equal, or be at most or at least, another: true for every seed, milliseconds.

    Exactly one of `equals`, `at_most`, `at_least` is given; `tolerance` belongs to `equals`.
    """

    name: str
    function: Callable[[], Any]
    equals: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        given = [bound for bound in (self.equals, self.at_most, self.at_least) if bound is not None]
        if len(given) != 1:
            raise AssayError(f"exact claim '{self.name}' needs exactly one of equals, at_most, at_least")

    def run(self) -> Finding:
        """Computes the number and compares it."""
        value = self.function()
        number = float(value.detach()) if isinstance(value, torch.Tensor) else float(value)
        if self.equals is not None:
            return Finding(
                self.name,
                number,
                f"= {self.equals:g} (within {self.tolerance:g})",
                abs(number - self.equals) <= self.tolerance,
            )
        if self.at_most is not None:
            return Finding(self.name, number, f"<= {self.at_most:g}", number <= self.at_most)
        assert self.at_least is not None
        return Finding(self.name, number, f">= {self.at_least:g}", number >= self.at_least)


@dataclass(frozen=True)
class Measured:
    """A comparison on paired seeds, its decision rule stated in advance: `ours` minus `theirs` beyond `margin`.

    `higher` says which way `metric` is good; `minutes` is the budget it was planned for.
    """

    name: str
    task: str
    ours: Recipe
    theirs: Recipe
    metric: str = "evaluation"
    higher: bool = True
    margin: float = 0.0
    seeds: int = 10
    minutes: float = 5.0


@dataclass(frozen=True)
class Method:
    """One method: its recipe as a function of the world, its paper, how it departs from it, what it claims.

    `worlds` names the worlds it works in, `home` the task it is shown on. The formula is the module's docstring.
    """

    paper: str
    recipe: Callable[..., Recipe]
    worlds: tuple[World, ...]
    home: str
    departs: tuple[str, ...] = ()
    claims: tuple[Exact | Measured, ...] = ()

    @property
    def exact(self) -> tuple[Exact, ...]:
        """Its exact claims."""
        return tuple(claim for claim in self.claims if isinstance(claim, Exact))

    @property
    def measured(self) -> tuple[Measured, ...]:
        """Its measured claims."""
        return tuple(claim for claim in self.claims if isinstance(claim, Measured))
