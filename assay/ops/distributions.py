"""Distributions as functions of their parameters, sampled through their inverse distribution function.

Axes: N rows, V options; what is written `...` may have any axes before.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.core.errors import AssayError

COLDEST, HOTTEST = 1e-6, 100.0
"""Below, quotients overflow float32; above, tokens that an actor excludes by a low logit could be sampled."""
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
LOG_TWO = math.log(2.0)


def check_temperature(temperature: float) -> None:
    """Raises AssayError for a divisor of logits that is not a number or out of range."""
    if not COLDEST <= temperature <= HOTTEST:
        raise AssayError(
            f"temperature is {temperature}. Use a number from {COLDEST:g} to {HOTTEST:g} (for the likeliest token "
            "alone, top_k=1)"
        )


def categorical_sample(logits_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Returns the category whose interval of the cumulative distribution contains `uniform`; none of probability 0.

    AssayError on the CPU if a row has no distribution; on a GPU that would wait for the device.
    """
    cumulative = logits_NV.softmax(-1).cumsum(-1)
    # Scaling by the last entry makes the total exactly one, whatever the rounding of the sum.
    point = uniform_N.to(cumulative.dtype).unsqueeze(-1) * cumulative[..., -1:]
    found = torch.searchsorted(cumulative, point, right=True)
    # If rounding puts the point at the total, take the last possible category: the first to reach the total.
    chosen = torch.minimum(found, torch.searchsorted(cumulative, cumulative[..., -1:].contiguous())).squeeze(-1)
    if chosen.is_cpu and bool((chosen == logits_NV.shape[-1]).any()):  # NaN is beyond every category
        raise AssayError(
            "the policy's logits are NaN or infinite, so that no action can be sampled. Look for such numbers in its "
            "weights and in observations, or lower the learning rate"
        )
    return chosen


def categorical_logp(logits: Tensor, action: Tensor) -> Tensor:
    """Returns log softmax(logits)[action]."""
    return logits.gather(-1, action.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)


def categorical_entropy(logits: Tensor) -> Tensor:
    """Returns -sum p log p; categories of logit -inf contribute 0."""
    log_prob = logits.log_softmax(-1)
    return -(log_prob.exp() * log_prob.masked_fill(log_prob == -math.inf, 0.0)).sum(-1)


FORBIDDEN = -1e8
"""Logits below this mark impossible actions."""


def categorical_candidates(logits: Tensor, action: Tensor) -> Tensor:
    """Returns log softmax(logits) at several actions, [..., K]."""
    return logits.gather(-1, action) - logits.logsumexp(-1, keepdim=True)


@torch.no_grad()
def uniform_logp(logits: Tensor) -> Tensor:
    """Returns the mean over all possible actions of log softmax(logits), without gradient."""
    possible = logits > FORBIDDEN
    return torch.where(possible, logits, 0.0).sum(-1) / possible.sum(-1).clamp(min=1) - logits.logsumexp(-1)


def normal_sample(uniform: Tensor) -> Tensor:
    """Returns standard normal numbers by the inverse distribution function."""
    return torch.special.ndtri(uniform.double()).to(uniform.dtype)


def normal_logp(value: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Returns the log-density of independent normals, summed over the last axis."""
    scaled = (value - mean) * (-log_std).exp()
    return (-0.5 * scaled.square() - log_std - HALF_LOG_TWO_PI).sum(-1)


def log_tanh_slope(latent: Tensor) -> Tensor:
    """Returns log(1 - tanh(x)^2), stable for large |x|."""
    return 2.0 * (LOG_TWO - latent - torch.nn.functional.softplus(-2.0 * latent))
