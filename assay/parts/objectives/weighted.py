"""Advantage-weighted regression on recorded decisions. Axes: B sequences, T decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.metrics import Metric
from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import Objective, View
from assay.parts.aggregations import OverTransitions


def exponential_weight(gain: Tensor, inverse_temperature: float, limit: float) -> Tensor:
    """Returns min(exp(inverse_temperature * gain), limit); the exponent is bounded first, so it cannot overflow."""
    return (inverse_temperature * gain).clamp(max=math.log(limit)).exp()


NEGLIGIBLE = 1e-3
"""A weight below this counts as none."""
CLIPPED_WEIGHTS = Metric(
    name="clipped_weights",
    most=0.5,
    guard="weights of order one",
    text="{value:.0%} of the weights were clipped at step {step}: advantages are so large that good decisions count as "
    "the best ones. Scale the rewards by their returns (source.scale), or lower the inverse temperature",
)
LOST_WEIGHTS = Metric(
    name="lost_weights",
    most=0.9,
    guard="weights of order one",
    text="{value:.0%} of the weights were below 0.001 at step {step}: hardly any decision is cloned. Scale the rewards "
    "by their returns (source.scale), or lower the inverse temperature",
)


@dataclass(frozen=True)
class AdvantageRegression(OverTransitions, Objective):
    """loss = -min(exp(beta * (min_i Q'_i(s, a) - V(s))), limit) * log pi(a|s) (AWR, IQL; arXiv:2110.06169).

    beta is `inverse_temperature`. The critics get no gradient. Degenerate: beta = 0 is behaviour cloning. Assumes that
    the data contain actions better than their mean.
    """

    inverse_temperature: float = 3.0
    limit: float = 100.0
    q: str = model_name("q_target")
    value: str = model_name("value")
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    watches: ClassVar[tuple[Metric, ...]] = (CLIPPED_WEIGHTS, LOST_WEIGHTS)
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is the critics' Q - V, not the column `advantage`"}

    def __post_init__(self) -> None:
        if not self.limit > 0.0:
            raise AssayError(f"AdvantageRegression.limit is {self.limit}. Use a largest weight above 0")

    def __call__(self, batch: Experience, view: View) -> Loss:
        now = batch.now
        with torch.no_grad():
            gain = view.model(self.q)(now.context, now.action).amin(0) - view.model(self.value)(now.context)
            weight = exponential_weight(gain, self.inverse_temperature, self.limit)
        logp = view.scored.logp[:, :-1]
        numbers = {"gain": gain, "clipped_weights": weight >= self.limit, "lost_weights": weight < NEGLIGIBLE}
        metrics = {name: ((value * now.weight).sum(), now.num_decisions) for name, value in numbers.items()}
        return Loss(-(weight * now.weight * logp).sum(), self.count(batch), metrics)
