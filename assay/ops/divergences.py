"""Divergences: estimators of KL(p || q) from samples of p, and exact ones of whole distributions.

Estimators are after Schulman's note (2020); `log_ratio` is log p - log q of the sample.

k1 = log_ratio                     unbiased value, may be negative
k2 = log_ratio^2 / 2               biased value, its gradient in p is the gradient of KL(p || q)
k3 = exp(-log_ratio) - 1 + log_ratio   unbiased value, not negative; its gradient in p is that of KL(q || p), not of
KL(p || q)

Whole distributions are log-probabilities [..., A], the policy's pi first; the result is [...]. Axes: A actions; an
estimate has the shape of `log_ratio`.
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


def reverse_kl(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns KL(pi || q) of whole distributions, the policy's first."""
    return (logp.exp() * (logp - logq)).sum(-1)


def forward_kl(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns KL(q || pi) of whole distributions, the policy's first."""
    return (logq.exp() * (logq - logp)).sum(-1)


def jensen_shannon(logp: Tensor, logq: Tensor) -> Tensor:
    """Returns half of KL(pi || m) + KL(q || m), m the mean of both; at most log 2."""
    middle = torch.logaddexp(logp, logq) - torch.tensor(2.0, dtype=logp.dtype).log()
    return 0.5 * (reverse_kl(logp, middle) + reverse_kl(logq, middle))


def with_tail(logp: Tensor) -> Tensor:
    """Returns log-probabilities of K actions and that of all others together, [..., K + 1]; at least log 1e-7."""
    inside = logp.logsumexp(-1, keepdim=True).clamp(max=-1e-7)
    return torch.cat((logp, torch.log(-torch.expm1(inside))), -1)
