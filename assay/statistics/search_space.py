"""Search spaces: real and whole numbers, choices, and what they have at a quantile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.ops import random

Setting: TypeAlias = float | int | str | bool | None
Settings: TypeAlias = Mapping[str, Setting]



# ---------------------------------------------------------------------------------------------------- space
@dataclass(frozen=True)
class Uniform:
    """A real number, uniform between its ends, or uniform in its logarithm."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        check_ends(self.low, self.high, self.log)

    def at(self, share: float) -> Setting:
        """Returns the quantile of a share in (0, 1)."""
        if self.log:
            return min(self.high, max(self.low, math.exp(between(math.log(self.low), math.log(self.high), share))))
        return between(self.low, self.high, share)

    def asked(self, name: str, trial: Any) -> Setting:
        """Returns the suggestion of Optuna's trial."""
        return float(trial.suggest_float(name, self.low, self.high, log=self.log))


@dataclass(frozen=True)
class Whole:
    """A whole number from low to high, both included; with `log`, as the floor of a log-uniform number."""

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        if self.low != int(self.low) or self.high != int(self.high):
            raise AssayError(f"ends must be whole numbers, got {self.low} and {self.high}: use Uniform for reals")
        check_ends(self.low, self.high, self.log)

    def at(self, share: float) -> Setting:
        """Returns the quantile of a share in (0, 1)."""
        value = Uniform(self.low, self.high + 1, self.log).at(share)
        return min(self.high, math.floor(float(value or 0.0)))

    def asked(self, name: str, trial: Any) -> Setting:
        """Returns the suggestion of Optuna's trial."""
        return int(trial.suggest_int(name, self.low, self.high, log=self.log))


@dataclass(frozen=True)
class Choice:
    """One of several options, each as likely as the others."""

    options: tuple[Setting, ...]

    def __post_init__(self) -> None:
        if not self.options or any(not isinstance(each, float | int | str | bool | None) for each in self.options):
            raise AssayError(f"options must be one or more numbers, words, booleans or None, got {self.options!r}")

    def at(self, share: float) -> Setting:
        """Returns the quantile of a share in (0, 1)."""
        return self.options[math.floor(share * len(self.options))]

    def asked(self, name: str, trial: Any) -> Setting:
        """Returns the suggestion of Optuna's trial."""
        return self.options[int(trial.suggest_categorical(name, list(range(len(self.options)))))]


@dataclass(frozen=True)
class Space:
    """The settings to search, by name."""

    settings: Mapping[str, Uniform | Whole | Choice]

    def __post_init__(self) -> None:
        if not self.settings:
            raise AssayError("settings must name at least one setting to search, got none: name one")

    def sample(self, draw: Draw) -> dict[str, Setting]:
        """Draws independent values, a hash of the draw: the same on every call and machine."""
        shares = random.uniform(draw, np.arange(len(self.settings)))
        return {name: each.at(float(share)) for (name, each), share in zip(self.settings.items(), shares, strict=True)}


def between(low: float, high: float, share: float) -> float:
    """Interpolates between the ends, never beyond them."""
    return min(high, max(low, low + (high - low) * share))


def check_ends(low: float, high: float, log: bool) -> None:
    """Refuses ends that are not finite and in order, or not positive on a logarithmic scale."""
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise AssayError(f"low and high must be finite and in order, got {low} and {high}: swap or change them")
    if log and low <= 0:
        raise AssayError(f"low must be above 0 on a logarithmic scale, got {low}: raise it or drop log")
