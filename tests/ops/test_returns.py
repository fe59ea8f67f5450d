"""Returns along time: successors, holes, ends. Expected numbers are written out; GAE is in parts/critics/test_td.py."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.ops import returns


def flags(text: str) -> Tensor:
    """One row of marks: x is true."""
    return torch.tensor([[mark == "x" for mark in text]])


VALUE = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("mask", "terminal", "truncated", "after", "goes_on"),
    [
        # the next decision; the last one is followed by its next column
        ("xxx...", "......", "......", [2, 3, 4, 0, 0, 0], "xx...."),
        # nothing past the end of the record
        ("xxxxxx", "......", "......", [2, 3, 4, 5, 6, 0], "xxxxx."),
        # columns that are no decisions are stepped over
        ("x..x.x", "......", "......", [4, 0, 0, 6, 0, 0], "x..x.."),
        # a terminal decision is followed by nothing
        ("xxxx..", ".x....", "......", [2, 0, 4, 5, 0, 0], "x.x..."),
        # a truncated one by its next column, whoever decides there
        ("xx.xx.", "......", ".x....", [2, 3, 0, 5, 6, 0], "x..x.."),
        # where both are set the task ended the episode
        ("xx....", ".x....", ".x....", [2, 0, 0, 0, 0, 0], "x....."),
    ],
)
def test_what_follows_a_decision(mask: str, terminal: str, truncated: str, after: list[int], goes_on: str) -> None:
    value, chain = returns.following_value(VALUE, flags(mask), flags(terminal), flags(truncated))
    assert value[0].tolist() == after
    assert torch.equal(chain, flags(goes_on))


def test_discounted_returns_by_hand() -> None:
    """Discount 1/2. Episode one: decisions 0, 2 (a hole at 1), terminal at 2. Episode two: decisions 3, 4."""
    reward = torch.tensor([[1.0, 99.0, 2.0, 4.0, 8.0, 99.0]])
    seen = returns.discounted_returns(reward, flags("x.xxx."), flags("..x..."), flags("......"), 0.5)
    assert seen.tolist() == [[2.0, 0.0, 2.0, 8.0, 8.0, 0.0]]


def test_a_cut_episode_counts_what_was_seen() -> None:
    reward = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    seen = returns.discounted_returns(reward, flags("xxxx"), flags("...."), flags(".x.."), 1.0)
    assert seen.tolist() == [[2.0, 1.0, 2.0, 1.0]]


def test_an_empty_mask_gives_zeros() -> None:
    nothing = flags("......")
    assert not returns.gae(VALUE, VALUE, nothing, nothing, nothing, 0.9, 0.9).any()


@given(reward=st.lists(st.floats(-3, 3), min_size=1, max_size=8), discount=st.floats(0, 1))
def test_one_whole_episode_is_a_geometric_sum(reward: list[float], discount: float) -> None:
    whole = flags("x" * len(reward))
    last = flags("." * (len(reward) - 1) + "x")
    seen = returns.discounted_returns(torch.tensor([reward]).double(), whole, last, ~whole, discount)[0].tolist()
    for t, value in enumerate(seen):
        assert value == pytest.approx(
            sum(discount**k * r for k, r in enumerate(torch.tensor(reward[t:]).tolist())), abs=1e-9
        )


@given(value=st.lists(st.floats(-3, 3), min_size=6, max_size=6), discount=st.floats(0, 1), decay=st.floats(0, 1))
def test_advantages_are_zero_where_the_values_are_right(value: list[float], discount: float, decay: float) -> None:
    """Rewards that make every one-step error 0 make every advantage 0, for any decay."""
    value_BT = torch.tensor([value]).double()
    mask, terminal, truncated = flags("xx.xx."), flags("....x."), flags(".x....")
    after, _ = returns.following_value(value_BT, mask, terminal, truncated)
    seen = returns.gae(value_BT - discount * after, value_BT, mask, terminal, truncated, discount, decay)
    assert float(seen.abs().max()) < 1e-12
