"""Packing: everything has a place of its own, and comes back from it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.ops import packed_attention, packing
from assay.ops.attention import Attention

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


# ------------------------------------------------------------------------------------------------ shared prompts
def rows() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, mask and group: a prompt of two rows and one of three, a row of the same group with other tokens, equal
    tokens in another group, a hole, a row that decides nothing, one that decides once.
    """
    tokens = torch.randint(3, 40, (9, 12), generator=torch.Generator().manual_seed(5))
    prompt = torch.tensor([4, 4, 3, 3, 4, 4, 5, 3, 2])
    length = torch.tensor([9, 5, 12, 8, 9, 7, 11, 4, 12])
    tokens[1, :4] = tokens[5, :4] = tokens[0, :4]
    tokens[3, :3] = tokens[7, :3] = tokens[2, :3]
    column = torch.arange(12)
    mask = (column >= prompt.unsqueeze(1)) & (column < length.unsqueeze(1))
    mask[2, 5:8], mask[6] = False, False
    return tokens, mask, torch.tensor([0, 0, 1, 1, 0, 9, 3, 1, 4])


def test_a_prompt_is_shared_by_rows_of_one_group_with_equal_tokens() -> None:
    found = packing.reach(*rows())
    assert found.label_B.tolist() == [0, 0, 1, 1, 2, 3, -1, 1, 4]
    assert found.prompt_B.tolist() == [4, 4, 3, 3, 4, 4, 0, 3, 2]
    assert found.length_B.tolist() == [8, 4, 11, 7, 8, 6, 0, 3, 11]
    tokens, mask, _ = rows()
    assert packing.reach(tokens, mask, None).label_B.tolist() == [0, 1, 2, 3, 4, 5, -1, 6, 7]


def test_a_pack_has_every_token_once_and_each_sees_what_it_saw_in_its_row() -> None:
    tokens, mask, group = rows()
    pack, flat = packing.packed(tokens, mask, group), tokens.view(-1)
    found = packing.reach(tokens, mask, group)
    assert len(pack.token_N) == 4 + 3 + (4 + 0) + (8 + 4 + 0) + 8 + 6 + 11
    seen = packing.sees(pack.piece_N, pack.follows_N)
    assert pack.place_D.tolist() == mask.view(-1).nonzero().squeeze(1).tolist()
    for place, before in zip(pack.place_D.tolist(), pack.before_D.tolist(), strict=True):
        row, column = divmod(place, 12)
        visible = seen[before].nonzero().squeeze(1)
        assert flat[pack.token_N[visible]].tolist() == tokens[row, :column].tolist()
        assert pack.position_N[visible].tolist() == list(range(column))
    assert int(pack.begin[-1]) == len(pack.token_N) == int(found.length_B.sum()) - 4 - 2 * 3


def test_a_pack_of_nothing_is_empty() -> None:
    tokens, mask, group = rows()
    for some in (packing.packed(tokens, mask & False, group), packing.packed(tokens[:0], mask[:0], group[:0])):
        assert len(some.token_N) == len(some.place_D) == 0


def plain_scores(query: Tensor, key: Tensor, begin: Tensor, begin_key: Tensor, scale: float) -> Tensor:
    """Of sequences whose masks end at both ends, [H, N, M]; minus infinity where nobody looks."""
    scores = torch.full((query.shape[1], len(query), len(key)), -torch.inf, dtype=query.dtype)
    for first, last, start, stop in zip(begin, begin[1:], begin_key, begin_key[1:], strict=False):
        seen = torch.ones(last - first, stop - start, dtype=torch.bool).tril(int(stop - start - last + first))
        some = torch.einsum("nhe,mhe->hnm", query[first:last], key[start:stop]) * scale
        scores[:, first:last, start:stop] = some.masked_fill(~seen, -torch.inf)
    return scores


def plain_kernel(query: Tensor, key: Tensor, value: Tensor, begin: Tensor, begin_key: Tensor, *rest: Any) -> Any:
    """What the kernel does."""
    wide_key, wide_value = (some.repeat_interleave(query.shape[1] // key.shape[1], 1) for some in (key, value))
    scores = plain_scores(query, wide_key, begin, begin_key, rest[-1])
    return torch.einsum("hnm,mhe->nhe", scores.softmax(-1), wide_value), scores.logsumexp(-1)


def plain_kernel_slopes(slope: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Any:
    """What its backward pass does, from the output and the log-sum-exp."""
    output, lse, begin, begin_key, _, _, scale = rest
    times = query.shape[1] // key.shape[1]
    wide_key, wide_value = (some.repeat_interleave(times, 1) for some in (key, value))
    prob = (plain_scores(query, wide_key, begin, begin_key, scale) - lse.unsqueeze(-1)).exp()
    inner = torch.einsum("nhe,mhe->hnm", slope, wide_value) - (slope * output).sum(-1).t().unsqueeze(-1)
    by_score = prob * inner * scale
    wide = [torch.einsum("hnm,nhe->mhe", *both) for both in ((by_score, query), (prob, slope))]
    by_key, by_value = (some.unflatten(1, (-1, times)).sum(2) for some in wide)
    return torch.einsum("hnm,mhe->nhe", by_score, wide_key), by_key, by_value


@pytest.mark.parametrize("group", [torch.tensor([0, 0, 1, 1, 0, 9, 3, 1, 4]), None])
def test_copied_prompts_are_seen_as_shared_ones(group: Tensor | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_attention, "kernel", plain_kernel)
    monkeypatch.setattr(packed_attention, "kernel_slopes", plain_kernel_slopes)
    pack, draw = packing.packed(*rows()[:2], group), torch.Generator().manual_seed(1)
    shapes = [(len(pack.token_N), heads, 8) for heads in (4, 2, 2, 4)]
    *heads, slope = (torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes)
    found = []
    for is_fast in (False, True):
        own = [some.clone().requires_grad_() for some in heads]
        plan = packed_attention.plan(pack, is_fast, torch.device("cpu"))
        attended = packed_attention.attend(own[0], own[1], own[2], Attention(0.3), plan)
        found.append([attended.detach(), *torch.autograd.grad(attended, own, slope)])
    for plain, copied in zip(*found, strict=True):
        torch.testing.assert_close(copied, plain)
