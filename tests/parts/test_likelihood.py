"""Reductions of the probabilities of tokens, against numbers by hand."""

from __future__ import annotations

import pytest
import torch

from assay.parts.rewards.likelihood import Reduce, geometric_mean, likelihood, mean_probability


@pytest.mark.parametrize(
    ("reduce", "expected"), [(mean_probability, 0.6775), (likelihood, 0.00729), (geometric_mean, 0.29220)]
)
def test_tokens_that_do_not_count_change_nothing(reduce: Reduce, expected: float) -> None:
    logp = torch.tensor([[0.9, 0.9, 0.9, 0.01, 0.5]], dtype=torch.float64).log()
    counts = torch.tensor([[True, True, True, True, False]])
    assert reduce(logp, counts).tolist() == pytest.approx([expected], abs=1e-5)
    assert torch.isfinite(reduce(logp, torch.zeros_like(counts))).all()
