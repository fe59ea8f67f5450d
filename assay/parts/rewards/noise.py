"""Rewards with chance in them, for testbeds. Axes: B sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import Reward, Scene
from assay.core.verifier import Verifier
from assay.parts.rewards.combine import Rescored
from assay.parts.rewards.function import uniform_of
from assay.parts.rewards.labels import ByLabel

Rates = Mapping[str, tuple[float, float]]
"""P(accepted | wrong) and P(rejected | right) of each label; the empty label is every prompt's if `label` is empty."""


def drawn(total_B: Tensor, uniform_B: Tensor) -> Tensor:
    """Returns 1 with the probability that is the total, else 0: on a table of probabilities, a verifier that errs."""
    return uniform_B < total_B


@dataclass(frozen=True)
class Noisy(Rescored):
    """reward = noise(total of `reward`, u), u uniform from 0 to 1, on the last decision.

    Numbers u belong to (step, start, sample). Degenerate: `drawn` leaves totals of 0 and 1 as they are. Source: by
    definition. Assumes that chance does not depend on the answer but through its total.
    """

    reward: Reward = Verifier()
    noise: Callable[[Tensor, Tensor], Tensor] = drawn
    stochastic: ClassVar[bool] = True

    def rescored(self, total_B: Tensor, rewarded: Experience, scene: Scene) -> Tensor:
        return self.noise(total_B, uniform_of(rewarded, scene)).to(total_B.dtype)


def noisy(rates: Rates, label: str = "label") -> Reward:
    """The verifier with these errors, for testbeds: it logs the truth as `verdict/LABEL/right`."""
    return Noisy(ByLabel({kind: {"right": 1.0 - f1, "wrong": f0} for kind, (f0, f1) in rates.items()}, label=label))
