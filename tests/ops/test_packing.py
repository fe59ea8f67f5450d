"""Packing: everything has a place of its own, and comes back from it."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.ops import packing

lengths = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@given(length=lengths, row_length=st.integers(1, 14))
def test_places_do_not_overlap_and_fit_their_rows(length: list[int], row_length: int) -> None:
    row, offset, num_rows = packing.places(torch.tensor(length), row_length)
    width = max(row_length, *length)
    taken = torch.zeros(num_rows, width, dtype=torch.long)
    for r, start, size in zip(row.tolist(), offset.tolist(), length, strict=True):
        assert 0 <= r < num_rows
        assert start + size <= width
        taken[r, start : start + size] += 1
    assert int(taken.max()) <= 1
    assert int(taken.sum()) == sum(length)


@given(length=lengths, row_length=st.integers(1, 14))
def test_packing_opens_no_row_that_the_first_could_hold(length: list[int], row_length: int) -> None:
    """First fit: no sequence stands in a later row if an earlier one has room for it in the end."""
    row, _, num_rows = packing.places(torch.tensor(length), row_length)
    width = max(row_length, *length)
    used = [sum(size for r, size in zip(row.tolist(), length, strict=True) if r == k) for k in range(num_rows)]
    for r, size in zip(row.tolist(), length, strict=True):
        assert all(used[earlier] + size > width for earlier in range(r))


def test_who_sees_whom() -> None:
    document = torch.tensor([[4, 4, 7, 7, -1]])
    seen = packing.same_document_before(document)[0].int().tolist()
    assert seen == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]]


def running_sums(tokens: Tensor, position: Tensor, document: Tensor) -> Tensor:
    """A trunk that looks at what it may look at: the sum of the document's tokens so far, and the position."""
    sums = (packing.same_document_before(document) * tokens.unsqueeze(1)).sum(-1)
    return torch.stack([sums, position], -1).double()


@given(length=lengths, row_length=st.integers(1, 14), seed=st.integers(0, 1000))
def test_through_packed_rows_and_back(length: list[int], row_length: int, seed: int) -> None:
    """The same sums and positions as row by row, zeros where there is no token."""
    num_columns = max(*length, 1)
    tokens = torch.randint(1, 50, (len(length), num_columns), generator=torch.Generator().manual_seed(seed))
    valid = torch.arange(num_columns) < torch.tensor(length).unsqueeze(1)
    seen = packing.through_packed(running_sums, tokens, valid, row_length)
    sums = (tokens * valid).cumsum(1) * valid
    position = torch.arange(num_columns).expand_as(tokens) * valid
    assert torch.equal(seen, torch.stack([sums, position], -1).double())


def test_gradient_comes_back_to_each_token_once() -> None:
    weight = torch.ones(10, requires_grad=True)

    def trunk(tokens: Tensor, position: Tensor, document: Tensor) -> Tensor:
        return weight[tokens].unsqueeze(-1)

    tokens = torch.tensor([[1, 2, 3], [4, 0, 0], [5, 6, 0]])
    valid = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
    packing.through_packed(trunk, tokens, valid, 4).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0, 1, 1, 1, 1, 1, 1, 0, 0, 0]
