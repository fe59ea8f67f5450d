"""The three estimators of KL: values, signs, precision, slopes. Their expected gradients are in test_estimators.py."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.ops import divergences


def test_values_by_hand() -> None:
    log_ratio = torch.tensor([math.log(2.0), 0.0, -math.log(4.0)], dtype=torch.float64)
    assert torch.equal(divergences.k1(log_ratio), log_ratio)
    assert divergences.k2(log_ratio).tolist() == pytest.approx([math.log(2) ** 2 / 2, 0.0, math.log(4) ** 2 / 2])
    assert divergences.k3(log_ratio).tolist() == pytest.approx([0.5 - 1 + math.log(2), 0.0, 4 - 1 - math.log(4)])


@given(log_ratio=st.floats(-30, 30))
def test_k2_and_k3_are_never_negative_and_zero_only_at_equality(log_ratio: float) -> None:
    for dtype in (torch.float64, torch.float32):
        point = torch.tensor(log_ratio, dtype=dtype)
        assert float(divergences.k2(point)) >= 0.0
        assert float(divergences.k3(point)) >= 0.0
    if abs(log_ratio) > 1e-3:
        assert float(divergences.k3(torch.tensor(log_ratio))) > 0.0


def test_k3_is_exactly_zero_at_equality_and_precise_beside_it() -> None:
    """k3(x) = x^2 / 2 - x^3 / 6 + ...; the naive exp(-x) - 1 + x loses all digits in float32 at 1e-4."""
    assert float(divergences.k3(torch.tensor(0.0))) == 0.0
    point = torch.tensor(1e-4, dtype=torch.float64)
    assert float(divergences.k3(point)) == pytest.approx(0.5e-8 - 1e-12 / 6, rel=1e-6)


@given(log_ratio=st.floats(-5, 5))
def test_slopes(log_ratio: float) -> None:
    """dk1 = 1, dk2 = x, dk3 = 1 - exp(-x)."""
    for estimator, slope in (
        (divergences.k1, 1.0),
        (divergences.k2, log_ratio),
        (divergences.k3, -math.expm1(-log_ratio)),
    ):
        point = torch.tensor(log_ratio, dtype=torch.float64, requires_grad=True)
        estimator(point).backward()
        assert point.grad is not None
        assert float(point.grad) == pytest.approx(slope, abs=1e-12)
