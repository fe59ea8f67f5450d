"""Moves of the optimal policy, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.core.errors import AssayError
from assay.statistics import largest_shift, optimal_policy, policy_shift


def test_the_optimal_policy_is_a_softmax_and_uniform_over_ties_without_entropy() -> None:
    np.testing.assert_allclose(optimal_policy([1.0, 0.0], 0.5), [[1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))]])
    np.testing.assert_array_equal(optimal_policy([2.0, 1.0, 2.0]), [[0.5, 0.0, 0.5]])


def test_values_of_later_states_count() -> None:
    """The first action leads to a state worth 1 / (1 - 0.5), the second to one worth nothing and pays 0.9 now."""
    reward, following = [[0.0, 0.9], [1.0, 1.0], [0.0, 0.0]], [[1, 2], [1, 1], [2, 2]]
    assert optimal_policy(reward, following=following, discount=0.5)[0].tolist() == [1.0, 0.0]
    assert optimal_policy(reward)[0].tolist() == [0.0, 1.0]


def test_with_entropy_a_state_with_two_good_actions_is_worth_more() -> None:
    """V = log 2 + V / 2 = 2 log 2 there and 0 in the other, so that Q = (log 2, 0)."""
    reward, following = [[0.0, 0.0], [0.0, 0.0], [0.0, -1e3]], [[1, 2], [1, 1], [2, 2]]
    np.testing.assert_allclose(optimal_policy(reward, 1.0, following, 0.5)[0], [2 / 3, 1 / 3])


def test_a_shift_is_half_in_a_tie_and_nothing_within_the_gap() -> None:
    assert policy_shift([1.0, 1.0], [0.0, 1e-6]) == 0.5
    assert policy_shift([1.0, 0.9], [-0.049, 0.049]) == 0.0
    soft = 1 / (1 + math.exp(-0.2)) - 0.5
    assert policy_shift([1.0, 1.0], [0.1, -0.1], alpha=1.0) == pytest.approx(soft)


def test_the_largest_shift_is_that_of_the_worst_action() -> None:
    reward, alpha = [1.0, 0.9, 0.0], 0.1
    each = [policy_shift(reward, 0.05 * (2 * np.eye(3)[action] - 1), alpha) for action in range(3)]
    assert largest_shift(reward, 0.05, alpha) == max(each)
    assert largest_shift(reward, 0.0) == 0.0


def test_what_has_no_optimal_policy_is_refused() -> None:
    for wrong in (
        lambda: optimal_policy([1.0], -1.0),
        lambda: optimal_policy([1.0], discount=1.0),
        lambda: optimal_policy([math.nan]),
        lambda: optimal_policy([[1.0, 2.0]], following=[[0]], discount=0.5),
        lambda: largest_shift([[1.0]], 0.1),
        lambda: largest_shift([1.0], -0.1),
    ):
        with pytest.raises(AssayError):
            wrong()
