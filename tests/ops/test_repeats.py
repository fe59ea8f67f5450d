"""Rows taken several times: the values and the gradient of indexing, added up in one order."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.ops.repeats import repeats_of, taken

indices = st.lists(st.integers(0, 6), max_size=24)


@given(index=indices)
def test_every_place_is_named_once(index: list[int]) -> None:
    found = repeats_of(torch.tensor(index, dtype=torch.int64))
    named = {place: row for row, place in zip(found.row_S.tolist(), found.place_S.tolist(), strict=True)}
    for row, places in zip(found.row_P.tolist(), found.place_PC.tolist(), strict=True):
        own = [place for place in places if place >= 0]
        assert len(own) > 1, "a row that is taken once is in the other list"
        assert own == sorted(own), "in the order of the index"
        named |= dict.fromkeys(own, row)
    assert [named[place] for place in range(len(index))] == index
    assert len(found.place_S) + int((found.place_PC >= 0).sum()) == len(index)


@given(index=indices, seed=st.integers(0, 99))
def test_values_and_gradient_are_those_of_indexing(index: list[int], seed: int) -> None:
    draw, where = torch.Generator().manual_seed(seed), torch.tensor(index, dtype=torch.int64)
    states = torch.randn(7, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    slope = torch.randn(len(index), 3, generator=draw, dtype=torch.float64)
    found = taken(states, where, repeats_of(where))
    assert torch.equal(found, states[where])
    (mine,) = torch.autograd.grad((found * slope).sum(), states)
    (own,) = torch.autograd.grad((states[where] * slope).sum(), states)
    torch.testing.assert_close(mine, own, atol=1e-12, rtol=0)


def test_copies_are_rounded_once() -> None:
    """In bfloat16 256 + 1 + ... + 1 stays 256 if every sum is rounded; eight copies of a state are such a sum."""
    where = torch.tensor([0] * 9 + [1])
    states = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    slope = torch.tensor([256.0] + [1.0] * 8 + [5.0], dtype=torch.bfloat16).view(10, 1)
    (found,) = torch.autograd.grad((taken(states, where, repeats_of(where)) * slope).sum(), states)
    assert found.view(-1).tolist() == [264.0, 5.0]


def test_a_row_that_is_never_taken_has_no_gradient() -> None:
    states, where = torch.ones(3, 2, requires_grad=True), torch.tensor([2, 2])
    (found,) = torch.autograd.grad(taken(states, where, repeats_of(where)).sum(), states)
    assert found.tolist() == [[0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]
