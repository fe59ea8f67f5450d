"""Batches of tokens with rows of different lengths, and the slope of a trust region."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from assay.claims.laws.cases import RAGGED, TOKENS, build
from assay.core.record import Experience
from assay.parts.credit.outcome import GroupMean, OutcomeCredit


def slope_of(trust: object, log_ratio: Tensor, advantage: Tensor) -> Tensor:
    """d loss / d logp of each decision, for an old log-probability of -1."""
    logp = (log_ratio - 1.0).requires_grad_()
    loss, _ = trust(logp + 1.0, advantage, logp)  # type: ignore[operator]
    (slope,) = torch.autograd.grad(loss.sum(), logp)
    return slope


def ragged() -> Experience:
    """Token rows of different lengths with outcomes 0 and 1 in groups of 1, 2 and 4."""
    batch = build(TOKENS, RAGGED)
    last = batch.mask & (batch.mask.long().flip(1).cumsum(1).flip(1) == 1)
    right = torch.tensor([1.0, 0, 0, 1, 1, 0, 0], dtype=torch.float64)
    return replace(batch, reward=last * right.unsqueeze(1))


def empty() -> Experience:
    batch = ragged()
    return replace(batch, mask=torch.zeros_like(batch.mask))


def with_advantage(batch: Experience) -> Experience:
    return OutcomeCredit(GroupMean())(batch)
