"""Student's t distribution, for means of few values."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE_DOF = 2000  # beyond it Student's t is normal to four digits


@lru_cache(maxsize=4096)
def student_quantile(prob: float, dof: int) -> float:
    """Computes a quantile of Student's t for whole degrees of freedom and `prob` above one half, by bisection."""
    if dof > LARGE_DOF:
        return NormalDist().inv_cdf(prob)
    low, high = 0.0, 1.0
    while student_central(high, dof) < 2 * prob - 1:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_central(middle, dof) < 2 * prob - 1 else (low, middle)
    return high


def student_central(t: float, dof: int) -> float:
    """Computes P(|T| < t): the finite series in cos θ, θ = atan(t / √dof) (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    theta = math.atan2(t, math.sqrt(dof))
    square = math.cos(theta) ** 2
    odd = dof % 2
    k = np.arange(1, (dof - odd) // 2)
    factors: NDArray[Any] = (2 * k - 1 + odd) / (2 * k + odd) * square
    series = 1.0 + float(np.cumprod(factors).sum())
    if odd:
        return 2 / math.pi * (theta + (math.sin(theta) * math.cos(theta) * series if dof > 1 else 0.0))
    return math.sin(theta) * series
