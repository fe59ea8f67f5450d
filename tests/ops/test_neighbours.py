"""Nearest rows against a plain search."""

from __future__ import annotations

import pytest
import torch

from assay.ops.neighbours import nearest


@pytest.mark.parametrize("block", [1, 7, 1_000, 65_536])
def test_the_nearest_row_is_that_of_a_plain_search(block: int) -> None:
    draw = torch.Generator().manual_seed(0)
    rows, keys = torch.randn(500, 5, generator=draw), torch.randn(64, 5, generator=draw)
    plain = torch.stack([(rows - key).square().sum(-1).argmin() for key in keys])
    assert torch.equal(nearest(rows, keys, block), plain)


def test_far_from_the_origin_it_is_still_the_nearest() -> None:
    draw = torch.Generator().manual_seed(1)
    rows = 1e3 + torch.randn(300, 3, generator=draw)
    keys = rows[::10] + 1e-2 * torch.randn(30, 3, generator=draw)
    plain = torch.stack([(rows.double() - key).square().sum(-1).argmin() for key in keys.double()])
    assert torch.equal(nearest(rows, keys), plain)


def test_one_row_is_nearest_to_everything() -> None:
    assert nearest(torch.zeros(1, 2), torch.ones(3, 2)).tolist() == [0, 0, 0]
