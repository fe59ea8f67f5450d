"""Choices by rank."""

from __future__ import annotations

import pytest
import torch

from assay.ops.ranks import smallest


@pytest.mark.parametrize(("num", "expected"), [(0, []), (1, [1]), (2, [1, 3, 4]), (9, [0, 1, 3, 4])])
def test_the_smallest_candidates_and_ties_with_the_last_are_marked(num: int, expected: list[int]) -> None:
    value = torch.tensor([3.0, 1.0, 0.0, 2.0, 2.0])
    candidate = torch.tensor([True, True, False, True, True])
    assert smallest(value, candidate, num).nonzero().flatten().tolist() == expected
    assert not smallest(value, torch.zeros_like(candidate), num).any()
