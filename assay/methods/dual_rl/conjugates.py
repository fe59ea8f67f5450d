"""Convex generators f of divergences and their conjugates, from which the losses of dual RL follow.

    f*_p(y) = sup over t >= 0 of (t y - f(t));   ratio(y) = d f*_p / dy = argmax t: the density ratio at advantage y

f(1) = 0. `surrogate` F is f*_p where it raises a value and 0 below 0; for reverse KL it is all of f*_p, times e. An
implicit maximum is the minimiser of level * F(x - v) + (1 - level) * v (Sikchi et al. 2024, arXiv:2302.08560).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from assay.core.slots import Choice


class Conjugate(Choice, Protocol):
    """A generator of a divergence, elementwise."""

    def generator(self, t: Tensor) -> Tensor:
        """Returns f(t), t >= 0."""

    def conjugate(self, y: Tensor) -> Tensor:
        """Returns f*_p(y)."""

    def ratio(self, y: Tensor) -> Tensor:
        """Returns argmax over t >= 0 of t y - f(t)."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns F(y): convex, not decreasing."""


@dataclass(frozen=True)
class ChiSquare(Conjugate):
    """f(t) = (t - 1)^2;  f*_p(y) = max(y/2 + 1, 0)^2 - 1;  F(y) = y+ + y+^2 / 4."""

    def generator(self, t: Tensor) -> Tensor:
        """Returns (t - 1)^2."""
        return (t - 1.0).square()

    def conjugate(self, y: Tensor) -> Tensor:
        """Returns max(y/2 + 1, 0)^2 - 1."""
        return self.ratio(y).square() - 1.0

    def ratio(self, y: Tensor) -> Tensor:
        """Returns max(0, 1 + y/2)."""
        return (1.0 + 0.5 * y).clamp(min=0.0)

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns y+ + y+^2 / 4."""
        above = y.clamp(min=0.0)
        return above + 0.25 * above.square()


@dataclass(frozen=True)
class TotalVariation(Conjugate):
    """f(t) = |t - 1| / 2;  f*_p(y) = max(y, -1/2) up to 1/2 and infinite above;  F(y) = y+, linear growth."""

    def generator(self, t: Tensor) -> Tensor:
        """Returns |t - 1| / 2."""
        return 0.5 * (t - 1.0).abs()

    def conjugate(self, y: Tensor) -> Tensor:
        """Returns max(y, -1/2), infinite above 1/2."""
        return torch.where(y > 0.5, torch.inf, y.clamp(min=-0.5))

    def ratio(self, y: Tensor) -> Tensor:
        """Returns 0 below -1/2, 1 up to 1/2, infinite above."""
        return torch.where(y > 0.5, torch.inf, (y >= -0.5).to(y.dtype))

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns y+."""
        return y.clamp(min=0.0)


@dataclass(frozen=True)
class ReverseKl(Conjugate):
    """f(t) = t log t;  f*_p(y) = exp(y - 1);  F(y) = exp(y), whose implicit maximum is XQL's log E exp."""

    def generator(self, t: Tensor) -> Tensor:
        """Returns t log t, 0 at 0."""
        return torch.special.xlogy(t, t)

    def conjugate(self, y: Tensor) -> Tensor:
        """Returns exp(y - 1)."""
        return (y - 1.0).exp()

    def ratio(self, y: Tensor) -> Tensor:
        """Returns exp(y - 1)."""
        return (y - 1.0).exp()

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns exp(y)."""
        return y.exp()
