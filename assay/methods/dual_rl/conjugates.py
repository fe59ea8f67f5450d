"""Conjugates of divergences, from which the losses of dual RL follow: f*_p(y) = sup over t >= 0 of (t y - f(t)).

`surrogate` F is f*_p where it raises a value and 0 below 0; for reverse KL it is all of f*_p, times e. An
implicit maximum is the minimiser of level * F(x - v) + (1 - level) * v (Sikchi et al. 2024, arXiv:2302.08560).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from assay.core.slots import Choice


class Conjugate(Choice, Protocol):
    """The conjugate of a divergence, elementwise."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns F(y): convex, not decreasing."""


@dataclass(frozen=True)
class ChiSquare(Conjugate):
    """f(t) = (t - 1)^2;  f*_p(y) = max(y/2 + 1, 0)^2 - 1;  F(y) = y+ + y+^2 / 4."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns y+ + y+^2 / 4."""
        above = y.clamp(min=0.0)
        return above + 0.25 * above.square()


@dataclass(frozen=True)
class TotalVariation(Conjugate):
    """f(t) = |t - 1| / 2;  f*_p(y) = max(y, -1/2) up to 1/2 and infinite above;  F(y) = y+, linear growth."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns y+."""
        return y.clamp(min=0.0)


@dataclass(frozen=True)
class ReverseKl(Conjugate):
    """f(t) = t log t;  f*_p(y) = exp(y - 1);  F(y) = exp(y), whose implicit maximum is XQL's log E exp."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns exp(y)."""
        return y.exp()
