"""Estimators of KL(p || q) from samples of p, after Schulman's note (2020). `log_ratio` is log p - log q of the sample.

k1 = log_ratio                     unbiased value, may be negative
k2 = log_ratio^2 / 2               biased value, its gradient in p is the gradient of KL(p || q)
k3 = exp(-log_ratio) - 1 + log_ratio   unbiased value, not negative; its gradient in p is that of KL(q || p), not of
KL(p || q)
"""

from __future__ import annotations

import torch
from torch import Tensor


def k1(log_ratio: Tensor) -> Tensor:
    """Returns log p - log q."""
    return log_ratio


def k2(log_ratio: Tensor) -> Tensor:
    """Returns (log p - log q)^2 / 2."""
    return 0.5 * log_ratio.square()


def absolute(log_ratio: Tensor) -> Tensor:
    """Returns |log p - log q|: no estimate of a divergence, but a gradient of the same size at any distance; 0 at 0."""
    return log_ratio.abs()


def k3(log_ratio: Tensor) -> Tensor:
    """Returns q/p - 1 + log p - log q; computed with expm1, so that it is exactly 0 at equality."""
    return torch.expm1(-log_ratio) + log_ratio
