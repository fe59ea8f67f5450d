"""Statistics inside groups, against plain Python on lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean, stdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.core.record import Experience
from assay.ops import groups


def rows(
    outcome: list[float], label: list[int] | None, there: list[bool], episode: list[int] | None = None
) -> Experience:
    """Rows of two columns with the outcome on the second; `there` false is a row without a decision."""
    num = len(outcome)
    mask = torch.tensor(there).unsqueeze(1).expand(num, 2)
    return Experience(
        context={},
        action=torch.zeros(num, 2),
        mask=mask,
        logp=torch.zeros(num, 2),
        reward=torch.stack([torch.zeros(num), torch.tensor(outcome)], 1).double(),
        terminal=torch.zeros_like(mask),
        truncated=torch.zeros_like(mask),
        group=None if label is None else torch.tensor(label),
        episode=None if episode is None else torch.tensor(episode),
    )


Members = list[tuple[float, int, bool]]
members = st.lists(st.tuples(st.floats(-5, 5, width=32), st.integers(-2, 3), st.booleans()), min_size=1, max_size=10)


def reference(drawn: Members, statistic: Callable[[list[float], float], float]) -> list[float]:
    """The statistic of (outcomes of the row's group that are there, the row's own outcome), row by row."""
    return [
        statistic([value for value, other, there in drawn if other == label and there], own if present else 0.0)
        for own, label, present in drawn
    ]


def values_of(drawn: Members) -> tuple[Experience, Tensor]:
    outcome, label, there = (list(column) for column in zip(*drawn, strict=True))
    experience = rows(outcome, label, there)
    return experience, groups.outcome(experience)


@given(drawn=members)
def test_mean_counts_the_rows_that_are_there(drawn: Members) -> None:
    experience, outcome = values_of(drawn)
    expected = reference(drawn, lambda inside, own: mean(inside) if inside else 0.0)
    assert groups.mean(outcome, groups.row_groups(experience)).tolist() == pytest.approx(expected, abs=1e-12)


@given(drawn=members)
def test_mean_of_others_leaves_the_row_out(drawn: Members) -> None:
    experience, outcome = values_of(drawn)

    def without(inside: list[float], own: float) -> float:
        return (sum(inside) - own) / (len(inside) - 1) if len(inside) > 1 else 0.0

    seen = groups.mean_of_others(outcome, groups.row_groups(experience))[experience.mask.any(1)].tolist()
    expected = [one for one, (_, _, there) in zip(reference(drawn, without), drawn, strict=True) if there]
    assert seen == pytest.approx(expected, abs=1e-12)


@given(drawn=members)
def test_deviation_divides_by_n_minus_one(drawn: Members) -> None:
    experience, outcome = values_of(drawn)
    expected = reference(drawn, lambda inside, own: stdev(inside) if len(inside) > 1 else 0.0)
    assert groups.deviation(outcome, groups.row_groups(experience)).tolist() == pytest.approx(expected, abs=1e-6)


@given(drawn=members)
def test_groups_without_a_difference_are_found_exactly(drawn: Members) -> None:
    experience, outcome = values_of(drawn)
    expected = reference(drawn, lambda inside, own: float(len(set(inside)) > 1))
    assert groups.differs(outcome, groups.row_groups(experience)).double().tolist() == expected


def test_equal_outcomes_do_not_differ_though_their_deviation_rounds_up() -> None:
    """Seven times 0.1 has the mean 0.09999999999999999."""
    experience = rows([0.1] * 7, [1] * 7, [True] * 7)
    assert not bool(groups.differs(groups.outcome(experience), groups.row_groups(experience)).any())


def test_without_labels_every_row_is_alone() -> None:
    experience = rows([1.0, 2.0], None, [True, True])
    alone = groups.row_groups(experience)
    assert alone.num == 2
    assert groups.mean(groups.outcome(experience), alone).tolist() == [1.0, 2.0]
    assert groups.mean_of_others(groups.outcome(experience), alone).tolist() == [0.0, 0.0]
    assert groups.deviation(groups.outcome(experience), alone).tolist() == [0.0, 0.0]


def test_totals_by_group() -> None:
    by_label = groups.groups_of(torch.tensor([7, -1, 7]), 3, torch.device("cpu"))
    assert by_label.size.tolist() == [1, 2]
    assert groups.total(torch.tensor([1.0, 2.0, 4.0]), by_label).tolist() == [2.0, 5.0]


def test_segments_of_an_episode_share_its_outcome_and_count_as_one() -> None:
    """Group 0: an episode of three rows worth 1 + 2 + 3 and one of a row worth 2; the mean is (6 + 2) / 2."""
    experience = rows([1.0, 2.0, 3.0, 2.0], [0, 0, 0, 0], [True] * 4, episode=[5, 5, 5, 9])
    outcome, by_group = groups.outcome(experience), groups.row_groups(experience)
    assert outcome.tolist() == [6.0, 6.0, 6.0, 2.0]
    assert groups.mean(outcome, by_group).tolist() == pytest.approx([4.0] * 4)
    assert groups.mean_of_others(outcome, by_group).tolist() == pytest.approx([2.0, 2.0, 2.0, 6.0], abs=1e-6)
    assert groups.deviation(outcome, by_group).tolist() == pytest.approx([8.0**0.5] * 4)


def test_rewards_of_masked_columns_do_not_count() -> None:
    assert groups.outcome(rows([1.0, 2.0], [0, 0], [True, False])).tolist() == [1.0, 0.0]


def test_groups_that_share_a_game_are_linked_and_without_players_none_is() -> None:
    game = rows([0.0] * 8, [4, 5, 9, 5, 4, 7, 9, 7], [True] * 7 + [False], [1, 1, 2, 3, 3, 4, 5, 4])
    alone = groups.row_groups(game)
    assert torch.equal(groups.linked_groups(game).index, alone.index)
    linked = groups.linked_groups(replace(game, player=torch.tensor([0, 1, 0, 1, 0, 0, 0, 1])))
    assert linked.index.tolist() == [0, 0, 2, 0, 0, 1, 2, 1]
    assert linked.size.tolist() == [4, 2, 2]
    chain = replace(game, group=None, player=torch.arange(8), episode=torch.tensor([6, 6, 7, 7, 8, 8, 7, 6]))
    assert groups.linked_groups(chain).index.tolist() == [0, 0, 1, 1, 2, 2, 1, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.1, 0.7, -3.3, 100.1, 1000.1, 1e6 + 0.1])
def test_the_mean_of_equal_values_is_exactly_that_value(value: float, dtype: torch.dtype) -> None:
    for size in (2, 3, 5, 7, 37, 64):
        same = torch.full((size + 1,), value, dtype=dtype)
        same[size] = 5.0  # a row that left training
        found = groups.groups_of(torch.zeros(size + 1, dtype=torch.long), size + 1, same.device)
        found = replace(found, share=torch.tensor([1.0] * size + [0.0], dtype=torch.float64))
        assert (groups.mean(same, found)[:size] == same[:size]).all()
        assert (groups.mean_of_others(same, found)[:size] == same[:size]).all()
        assert (groups.deviation(same, found) == 0).all()


@pytest.mark.parametrize("raised", [0.0, 1.0])
def test_a_mean_keeps_its_gradient_where_values_are_equal_and_where_not(raised: float) -> None:
    value = torch.full((3,), 1000.1, requires_grad=True)
    one = groups.groups_of(torch.zeros(3, dtype=torch.long), 3, value.device)
    assert float(value.detach().sum() / 3) != float(value.detach()[0]), "rounding must matter, or nothing is shown"
    found = groups.mean(value + raised * torch.tensor([0.0, 0.0, 1.0]), one)
    found.sum().backward()
    assert value.grad is not None
    assert value.grad.tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_the_range_of_nothing_leaves_a_mean_as_it_is() -> None:
    for num in (0, 2):
        low, high = groups.range_of(torch.zeros(num), torch.zeros(num, dtype=torch.bool))
        assert float(groups.inside(torch.tensor(0.3), low, high)) == pytest.approx(0.3)
    assert groups.range_of(torch.tensor([3.0, 1.0, 9.0]), torch.tensor([True, True, False])) == (1.0, 3.0)


def test_members_are_last_rows_of_episodes_by_sample_and_rows_without_a_decision_are_none() -> None:
    ragged = rows([0.0] * 7, [5, 2, 5, 9, 2, 5, 5], [True] * 5 + [False, True])
    assert list(groups.members(ragged)) == [[1, 4], [0, 2, 6], [3]]
    backwards = ragged.add({"sample": -torch.arange(7)})
    assert list(groups.members(backwards)) == [[4, 1], [6, 2, 0], [3]]
    assert list(groups.members(replace(ragged, group=None))) == [[0], [1], [2], [3], [4], [6]]
    segments = rows([0.0] * 6, [4, 4, 4, 1, 4, 4], [True] * 5 + [False], [10, 10, 11, 12, 13, 13])
    assert groups.last_rows(segments).tolist() == [False, True, True, True, True, False]
    assert list(groups.members(segments)) == [[3], [1, 2, 4]]
